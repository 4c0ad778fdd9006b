"""Configurations of experiments: typed, checked when made, and readable from `key=value`."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from atlasd.errors import InputError
from atlasd.limits import TOLERANCE
from atlasd.runtime.progress import Progress
from atlasd.runtime.text import did_you_mean

C = TypeVar("C", bound="Config")
_WORDS: Mapping[Any, Mapping[str, Any]] = {
    bool: {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False},
    type(None): {"none": None, "": None},
}
"""How values without a notation of their own are written."""


def option(
    default: Any, help: str, *, least: float | None = None, most: float | None = None, metavar: str | None = None
) -> Any:
    """A field of a configuration, with its meaning, its range, and what stands for it in the help of a command."""
    described = {"help": help, "least": least, "most": most, "metavar": metavar}
    return dataclasses.field(default=default, metadata=described)


def tolerance_option() -> Any:
    """The setting `tolerance`, which every experiment that discovers has, with one default for all."""
    return option(TOLERANCE, "largest strength of a breaking that counts as a symmetry", least=1e-6, most=0.999)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of all configurations: every value is checked against its annotation and range.

    Annotations may be `int`, `float`, `bool`, `str`, `None`, a `Literal` of strings, or a union of these.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Walk(Config):
        ...     steps: int = option(10, "how far", least=1)
        >>> parse_settings(Walk, ["steps=3"]).steps
        3
        >>> parse_settings(Walk, ["step=3"])
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: unknown key 'step', did you mean 'steps'? Keys are: steps.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values that each `preset` fills in, where the experiment has presets."""

    MANY: ClassVar[bool] = False
    """Whether runs with other settings are other questions, which must not take each other's place."""

    IMPLIES: ClassVar[Mapping[tuple[str, Any], Mapping[str, Any]]] = {}
    """Values that a `(key, value)` fills in, because it would mean nothing without them."""

    def __post_init__(self) -> None:
        kinds = _kinds(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not any(_fits(value, kind) for kind in kinds[field.name]):
                raise _wrong(field, kinds[field.name], value)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            least, most = field.metadata.get("least"), field.metadata.get("most")
            if (least is not None and value < least) or (most is not None and value > most):
                raise _wrong(field, kinds[field.name], value)

    def as_dict(self) -> dict[str, Any]:
        """The values by name."""
        return dataclasses.asdict(self)

    def changes(self) -> dict[str, Any]:
        """The values that the preset alone does not give, and the preset unless it is the usual one."""
        preset = getattr(self, "preset", None)
        usual = configure(type(self), {} if preset is None else {"preset": preset}).as_dict()
        changed = {k: v for k, v in self.as_dict().items() if v != usual[k]}
        if preset is not None and preset != next(iter(self.PRESETS)):
            changed = {"preset": preset, **changed}
        return changed

    def command(self, name: str, seed: int) -> list[str]:
        """What follows `atlasd` on the command line that does the same again."""
        words = ["run", name, "--seed", str(seed)]
        for key, value in self.changes().items():
            words += ["--set", f"{key}={_written(value) if isinstance(value, bool) else value}"]
        return words

    def title(self, name: str) -> str:
        """What run directories are called by, before the seed."""
        return name

    @classmethod
    def describe(cls) -> list[tuple[str, str, str, str]]:
        """Key, accepted values, default and meaning of every field."""
        kinds = _kinds(cls)
        return [
            (f.name, _expected(f, kinds[f.name]), _written(f.default), f.metadata.get("help", ""))
            for f in dataclasses.fields(cls)
        ]


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Base of the configurations of runs and comparisons: all can be told where to work."""

    device: str = option("cpu", "where tensors live and networks are trained: cpu, cuda or cuda:1")


@dataclass(frozen=True, kw_only=True)
class PaperConfig(RunConfig):
    """Base of the configurations of experiments that the paper has too."""

    PAPER: ClassVar[Mapping[str, Any]] = {}
    """Values of the paper's own run."""

    preset: Literal["cpu", "paper"] = option("cpu", "defaults: minutes on two cores, or the paper's own settings")

    def __init_subclass__(cls) -> None:
        cls.PRESETS = {"cpu": {}, "paper": cls.PAPER}


@dataclass(frozen=True, kw_only=True)
class SearchConfig(PaperConfig):
    """Settings of searches that several experiments have in common."""

    IMPLIES: ClassVar[Mapping[tuple[str, Any], Mapping[str, Any]]] = {
        ("similarity", "cosine"): {"search": "gradient"},
        ("generators", "auto"): {"search": "gradient"},
        ("normalize", False): {"cosets": "gradient"},
    }

    search: Literal["spectral", "gradient"] = option("spectral", "closed form, or the paper's algorithm")
    published: bool = option(False, "searches exactly as the paper describes them; the verdict is given beside")
    similarity: Literal["standard", "cosine"] = option("standard", "how the gradient search keeps generators apart")
    cosets: Literal["normalizer", "gradient"] = option("normalizer", "search for cosets")
    starts: int = option(64, "random starts of the coset search", least=1)
    normalize: bool = option(True, "keep determinants at 1 or -1 in the gradient search for cosets")
    tolerance: float = tolerance_option()


def asking(config: Any, seed: int, progress: Progress) -> dict[str, Any]:
    """What every study passes on to `discover`."""
    return {"tolerance": config.tolerance, "seed": seed, "device": config.device, "progress": progress}


def configure(kind: type[C], values: Mapping[str, Any]) -> C:
    """Makes a configuration from typed values; presets, and then implications, fill in what they leave out."""
    known = [f.name for f in dataclasses.fields(kind)]
    for key in values:
        if key not in known:
            raise InputError(f"unknown key {key!r}{did_you_mean(key, known)} Keys are: {', '.join(known)}.")
    preset = kind.PRESETS.get(values["preset"], {}) if "preset" in values else {}
    implied: dict[str, Any] = {}
    for (key, value), settings in kind.IMPLIES.items():
        if key in values and values[key] == value:
            implied.update(settings)
    return kind(**{**implied, **preset, **values})


def parse_settings(kind: type[C], settings: Sequence[str]) -> C:
    """Makes a configuration from `key=value` texts, as given on the command line.

    Arguments:
        settings: Texts such as `"samples=400"`; a later one does not silently replace an earlier one.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}
    kinds = _kinds(kind)
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise InputError(f"settings must have the form key=value, got {setting!r}; write for example seed=1.")
        if key in values:
            raise InputError(f"`{key}` must be set once, got it twice; leave one out.")
        # An unknown key is reported by `configure`, with its neighbours.
        values[key] = _read(fields[key], kinds[key], text.strip()) if key in fields else text
    return configure(kind, values)


def _kinds(kind: type[Config]) -> dict[str, tuple[Any, ...]]:
    """The alternatives of every field's annotation."""
    hints = typing.get_type_hints(kind)
    unions = (typing.Union, types.UnionType)
    return {
        f.name: typing.get_args(hints[f.name]) if typing.get_origin(hints[f.name]) in unions else (hints[f.name],)
        for f in dataclasses.fields(kind)
    }


def _fits(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return isinstance(value, str) and value in typing.get_args(kind)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return type(value) is kind  # not isinstance: True is an integer for it


def _read(field: dataclasses.Field[Any], kinds: tuple[Any, ...], text: str) -> Any:
    for kind in kinds:
        try:
            value = _convert(text, kind)
        except (ValueError, KeyError):
            continue
        if _fits(value, kind):
            return value
    raise _wrong(field, kinds, text)


def _convert(text: str, kind: Any) -> Any:
    if kind in _WORDS:
        return _WORDS[kind][text.lower()]
    return kind(text) if kind in (int, float) else text


def _expected(field: dataclasses.Field[Any], kinds: tuple[Any, ...]) -> str:
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
    parts = [", ".join(typing.get_args(k)) if typing.get_origin(k) is Literal else names[k] for k in kinds]
    least, most = field.metadata.get("least"), field.metadata.get("most")
    if least is not None and most is not None:
        parts[0] += f" from {least} to {most}"
    elif least is not None:
        parts[0] += f" of at least {least}"
    elif most is not None:
        parts[0] += f" of at most {most}"
    return " or ".join(parts)


def _wrong(field: dataclasses.Field[Any], kinds: tuple[Any, ...], value: Any) -> InputError:
    choices = [c for k in kinds if typing.get_origin(k) is Literal for c in typing.get_args(k)]
    one_of = "one of " if len(choices) > 1 and len(kinds) == 1 else ""
    near = did_you_mean(str(value), choices)
    remedy = f"; the default is {_written(field.default)}." if near == "." else near
    return InputError(f"`{field.name}` must be {one_of}{_expected(field, kinds)}, got {_written(value)!r}{remedy}")


def _written(value: Any) -> str:
    """A value as it is written after `key=`."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
