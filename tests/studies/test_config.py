"""Settings are typed and checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from atlasd.errors import InputError
from atlasd.studies.config import Config, configure, option, parse_settings


@dataclass(frozen=True, kw_only=True)
class Sample(Config):
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cpu": {},
        "paper": {"samples": 10_000, "rate": 0.5},
    }

    preset: Literal["cpu", "paper"] = option("cpu", "defaults")
    samples: int = option(400, "how many", least=8)
    rate: float = option(0.1, "how fast", least=0, most=1)
    generators: int | Literal["auto"] = option(1, "how many directions", least=1)
    normalize: bool = option(True, "whether")
    name: str = option("o2", "which")
    limit: int | None = option(None, "how far")


def test_defaults_are_valid():
    assert parse_settings(Sample, []) == Sample()


@pytest.mark.parametrize(
    "setting, key, value",
    [
        ("samples=12", "samples", 12),
        ("samples = 12 ", "samples", 12),
        ("rate=1e-2", "rate", 0.01),
        ("rate=1", "rate", 1.0),
        ("generators=auto", "generators", "auto"),
        ("generators=3", "generators", 3),
        ("normalize=False", "normalize", False),
        ("normalize=yes", "normalize", True),
        ("name=a=b", "name", "a=b"),
        ("limit=none", "limit", None),
        ("limit=4", "limit", 4),
    ],
)
def test_values(setting, key, value):
    found = getattr(parse_settings(Sample, [setting]), key)
    assert found == value


@pytest.mark.parametrize(
    "setting, message",
    [
        ("sample=3", "unknown key 'sample', did you mean 'samples'\\? Keys are: preset, samples, rate,"),
        ("zzzz=3", "unknown key 'zzzz'. Keys are: preset,"),
        ("samples", "form key=value, got 'samples'"),
        ("=3", "form key=value, got '=3'"),
        ("samples=many", "`samples` must be an integer of at least 8, got 'many'; the default is 400"),
        ("samples=1.5", "`samples` must be an integer of at least 8, got '1.5'"),
        ("samples=7", "`samples` must be an integer of at least 8, got '7'"),
        ("samples=", "`samples` must be an integer"),
        ("rate=nan", "`rate` must be a number from 0 to 1, got 'nan'"),
        ("rate=inf", "`rate` must be a number from 0 to 1, got 'inf'"),
        ("rate=1.01", "`rate` must be a number from 0 to 1, got '1.01'"),
        ("generators=0", "`generators` must be an integer of at least 1 or auto, got '0'"),
        ("generators=aut", "got 'aut', did you mean 'auto'\\?"),
        ("preset=papr", "`preset` must be one of cpu, paper, got 'papr', did you mean 'paper'\\?"),
        ("normalize=perhaps", "`normalize` must be true or false, got 'perhaps'"),
    ],
)
def test_bad_settings(setting, message):
    with pytest.raises(InputError, match=message):
        parse_settings(Sample, [setting])


def test_the_same_key_twice():
    with pytest.raises(InputError, match="`samples` must be set once"):
        parse_settings(Sample, ["samples=10", "samples=20"])


def test_presets_fill_what_is_left_out():
    paper = parse_settings(Sample, ["rate=0.25", "preset=paper"])
    assert (paper.samples, paper.rate) == (10_000, 0.25)
    assert paper.changes() == {"preset": "paper", "rate": 0.25}
    assert Sample(samples=9).changes() == {"samples": 9}


@pytest.mark.parametrize("values", [{"samples": 10.0}, {"samples": True}, {"rate": "0.5"}, {"normalize": 1}])
def test_values_from_python_are_checked_too(values):
    with pytest.raises(InputError, match=f"`{next(iter(values))}` must be"):
        configure(Sample, values)


def test_describe():
    rows = {key: rest for key, *rest in Sample.describe()}
    assert rows["generators"] == ["an integer of at least 1 or auto", "1", "how many directions"]
    assert rows["normalize"] == ["true or false", "true", "whether"]
