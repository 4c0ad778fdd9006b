"""A comparison that was interrupted goes on, or starts anew and says so."""

from dataclasses import dataclass

import pytest
import torch

from atlasd.algebra.lie import LieAlgebra
from atlasd.cli import main
from atlasd.studies.config import Config, option
from atlasd.studies.rivals import compare
from atlasd.studies.rivals.compare import Answer, Contest, perform
from atlasd.studies.rivals.measures import span_angle_to

TURN = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class ToyConfig(Config):
    samples: int = option(400, "points", least=1)


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Methods that were asked; the second is interrupted the first time."""
    asked = []

    def first(data, config, seed):
        asked.append("first")
        return Answer(TURN)

    def second(data, config, seed):
        asked.append("second")
        if asked.count("second") == 1:
            raise KeyboardInterrupt
        return Answer(TURN)

    toy = Contest(
        name="toy", config=ToyConfig, measure=span_angle_to(LieAlgebra(TURN)), data=lambda *_: None,
        methods={"first": first, "second": second}, control="nothing",
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "find_contest", lambda name: toy)
    monkeypatch.setattr(compare, "_alone", perform)
    return asked


def test_resume_goes_on(calls, tmp_path, capsys):
    assert main(["compare", "toy", "--set", "samples=300", "--methods", "first,second"]) == 130
    place = tmp_path / "runs" / "compare-toy-seed0"
    assert capsys.readouterr().err.splitlines()[-1].endswith("`atlasd resume runs/compare-toy-seed0` goes on with it.")
    assert {p.name for p in place.iterdir()} == {"stages"}
    assert main(["resume", str(place), "--json", "--quiet"]) == 0
    assert calls == ["first", "first", "second", "second", "second"]
    assert capsys.readouterr().out == (place / "compare.json").read_text()
    assert {p.name for p in place.iterdir()} == {"compare.json"}


def test_the_same_command_starts_anew_and_says_so(calls, tmp_path, capsys):
    assert main(["compare", "toy"]) == 130
    capsys.readouterr()
    assert main(["compare", "toy"]) == 0
    assert "is replaced; `atlasd resume` would have gone on with it" in capsys.readouterr().err
    assert calls == ["first", "first", "second", "first", "first", "second", "second"]
