"""Going on with a run that was stopped."""

from __future__ import annotations

__all__ = ["Wanted", "parse_words", "resume"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from atlasd.cli.common import Running, carry_out, tell
from atlasd.cli.options import running_options
from atlasd.errors import AtlasdError, DataError

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class _Grammar:
    """Words that may be taken from a file; what is not named here is refused."""

    names: range
    options: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()


# Where to work, where to write and whom to call are never read from a file: only the user of `resume` says that.
_GRAMMARS: Mapping[str, _Grammar] = {
    "run": _Grammar(range(1, 2), frozenset({"seed", "set"})),
    "discover": _Grammar(range(1, 3), frozenset({"seed"})),
    "compare": _Grammar(range(1, 2), frozenset({"seed", "set", "methods"})),
    "zoo": _Grammar(
        range(1), frozenset({"seeds", "first", "only", "mode", "noise", "tolerance"}), frozenset({"quick"})
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """What a run directory asks for: a command, its names, and its options with their values."""

    command: str
    names: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()

    def number(self, option: str, default: N) -> N:
        """The value of an option, as a number of the kind that its default is."""
        text = self.options.get(option, str(default))
        try:
            return type(default)(text)
        except ValueError as error:
            raise DataError(f"`{option}` of the kept run must be a number, got {text!r}; start it again.") from error


def parse_words(words: Sequence[str]) -> Wanted:
    """Understands the words of a manifest, and raises for any that it does not know.

    Example:
        >>> parse_words(["run", "heat", "--seed", "3", "--set", "atlas=three"]).settings
        ('atlas=three',)
        >>> parse_words(["run", "heat", "--dask", "tcp://elsewhere:8786"])
        Traceback (most recent call last):
            ...
        atlasd.errors.DataError: a kept run must not say '--dask', got it for run; start it again.
    """
    command, *rest = words or [""]
    grammar = _GRAMMARS.get(command)
    if grammar is None:
        raise DataError(f"a kept run must be one of {', '.join(_GRAMMARS)}, got {command!r}; start it again.")
    known = grammar.options | (_settings_of_discover() if command == "discover" else frozenset())
    names: list[str] = []
    options: dict[str, str] = {}
    settings: list[str] = []
    flags: set[str] = set()
    given = iter(rest)
    for word in given:
        key = word.removeprefix("--")
        if not word.startswith("-"):
            names.append(word)
        elif key in grammar.flags:
            flags.add(key)
        elif key not in known or word == key or (key in options):
            raise DataError(f"a kept run must not say {word!r}, got it for {command}; start it again.")
        elif (value := next(given, None)) is None:
            raise DataError(f"a kept run must give {word!r} a value, got none; start it again.")
        elif key == "set":
            settings.append(value)
        else:
            options[key] = value
    if len(names) not in grammar.names:
        raise DataError(f"a kept run must name what {command} works on, got {len(names)} names; start it again.")
    return Wanted(command, tuple(names), options, tuple(settings), frozenset(flags))


def _settings_of_discover() -> frozenset[str]:
    from atlasd.studies import OWN

    return frozenset(key.replace("_", "-") for key, *_ in OWN.config().describe()) - {"file", "second"}


@running_options
def resume(directory: Annotated[Path, typer.Argument(help="The run directory.")], *, running: Running) -> None:
    """Continue a run that was stopped or killed; finished stages are not done again."""
    from atlasd.runtime.stages import MARKS, NAME, read_plan, resuming

    if not directory.is_dir():
        raise DataError(f"`{directory}` must be a run directory, got nothing there; `atlasd run` makes one.")
    if any((directory / mark).is_file() for mark in MARKS) and not (directory / NAME).exists():
        tell(f"{directory} is finished; there is nothing to continue")
        return
    plan = read_plan(directory)
    where = plan.get("where")
    wanted = parse_words(plan["words"])
    try:
        with resuming(Path(where) if isinstance(where, str) else Path()):
            _go_on(wanted, directory, running)
    except (AtlasdError, OSError, MemoryError, typer.Exit):
        raise
    except Exception as error:  # whoever can write the directory can keep stages there that do not fit together
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(
            f"`{directory}` holds stages that do not fit together ({cause}); start the run again."
        ) from error


def _go_on(wanted: Wanted, directory: Path, running: Running) -> None:
    if wanted.command == "zoo":
        from atlasd.cli.zoo import zoo
        from atlasd.discovery.tolerance import TOLERANCE

        zoo(
            seeds=wanted.number("seeds", 5),
            first=wanted.number("first", 0),
            only=wanted.options.get("only", ""),
            mode=wanted.options.get("mode", "both"),
            noise=wanted.number("noise", 0.0),
            tolerance=wanted.number("tolerance", TOLERANCE),
            quick="quick" in wanted.flags,
            out=directory,
            running=running,
        )
        return
    seed = wanted.number("seed", 0)
    if wanted.command == "compare":
        from atlasd.cli.compare import compare

        compare(
            wanted.names[0],
            settings=list(wanted.settings),
            seed=seed,
            methods=wanted.options.get("methods", ""),
            out=directory,
            running=running,
        )
        return
    from atlasd.studies import OWN
    from atlasd.studies.record import plan_config, plan_run

    if wanted.command == "run":
        planned = plan_run(wanted.names[0], wanted.settings, seed=seed, out=directory)
    else:
        files = zip(("file", "second"), wanted.names, strict=False)
        texts = [f"{k}={v}" for k, v in (*files, *((k, v) for k, v in wanted.options.items() if k != "seed"))]
        planned = plan_config(OWN, OWN.configure(texts), seed=seed, out=directory)
    carry_out(planned, running)
