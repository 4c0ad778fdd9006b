"""Going on with a run that was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import Running, tell
from atlasd.cli.options import running_options
from atlasd.errors import AtlasdError, DataError


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


def check_words(words: Sequence[str]) -> None:
    """Raises for words of a manifest that are no command which may be taken from a file.

    Example:
        >>> check_words(["run", "heat", "--seed", "3", "--set", "atlas=three"])
        >>> check_words(["discover", "states.csv", "--flow", "--seed", "3"])
        >>> check_words(["run", "heat", "--dask", "tcp://elsewhere:8786"])
        Traceback (most recent call last):
            ...
        atlasd.errors.DataError: a kept run must not say '--dask', got it for run; start it again.
    """
    command, *rest = words or [""]
    grammar = _GRAMMARS.get(command)
    if grammar is None:
        raise DataError(f"a kept run must be one of {', '.join(_GRAMMARS)}, got {command!r}; start it again.")
    options, flags = grammar.options, grammar.flags
    if command == "discover":
        fields = _settings_of_discover()
        flags = frozenset(k for k, flag in fields.items() if flag)
        options = options | (frozenset(fields) - flags)
    names, seen = 0, set()
    given = iter(rest)
    for word in given:
        key = word.removeprefix("--")
        if not word.startswith("-"):
            names += 1
        elif word == key or key not in options | flags or (key in seen and key != "set"):
            raise DataError(f"a kept run must not say {word!r}, got it for {command}; start it again.")
        elif key in options and next(given, None) is None:
            raise DataError(f"a kept run must give {word!r} a value, got none; start it again.")
        seen.add(key)
    if names not in grammar.names:
        raise DataError(f"a kept run must name what {command} works on, got {names} names; start it again.")


def _settings_of_discover() -> dict[str, bool]:
    """Names of the options of `discover`, and whether each is a flag."""
    from atlasd.studies.own_data.settings import OwnConfig

    values = OwnConfig().as_dict()
    return {k.replace("_", "-"): isinstance(v, bool) for k, v in values.items() if k not in ("file", "second")}


@running_options
def resume(directory: Annotated[Path, typer.Argument(help="The run directory.")], *, running: Running) -> None:
    """Continue a run that was stopped or killed; finished stages are not done again."""
    from atlasd.runtime.stages import MARKS, NAME, read_plan, resuming

    if not directory.is_dir():
        raise DataError(f"`{directory}` must be a run directory, got nothing there; `atlasd run` makes one.")
    if any((directory / mark).is_file() for mark in MARKS) and not (directory / NAME).exists():
        tell(f"{directory} is finished; there is nothing to continue")
        return
    from atlasd.cli import app

    plan = read_plan(directory)
    where = plan.get("where")
    check_words(plan["words"])
    words = [*plan["words"], "--out", str(directory), *running.words()]
    try:
        with resuming(Path(where) if isinstance(where, str) else Path()):
            status = typer.main.get_command(app).main(words, prog_name="atlasd", standalone_mode=False)
    except (AtlasdError, OSError, MemoryError, typer.Exit, typer.Abort):
        raise
    except Exception as error:  # whoever can write the directory can keep stages there that do not fit together
        if callable(getattr(error, "format_message", None)):  # the command line does not understand a value
            raise
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(
            f"`{directory}` holds stages that do not fit together ({cause}); start the run again."
        ) from error
    if status:  # interrupted: typer gives that back as a number
        raise typer.Exit(status)
