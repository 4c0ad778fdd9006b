"""Which variables of a file are the input and the target: as named, or guessed where there is only one way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from atlasd.data.files import DataFile, Variable, find_variable
from atlasd.errors import InputError

_TARGETS = "y target targets output outputs out label labels final after mass m class is_signal answer mask"
_INPUTS = "x input inputs in image images features feature momenta initial before data"
_LATER = re.compile(r"(?:(?:next|new|after|later)_(.+)|(.+)_(?:next|new|after|later))", re.IGNORECASE)
_MOMENTUM = (("e", "energy"), ("px",), ("py",), ("pz",))
_MOST_COLUMNS = 12


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen variables, and the options that were guessed.

    Arguments:
        inputs: Variables of the input: channels of a field, entries of a vector, or one array.
        tokens: Names of the columns of each token, where inputs are sets of vectors.
        guessed: Options that were not given, as they could have been.
        table: Whether the variables are columns of a table.
    """

    inputs: tuple[Variable, ...]
    targets: tuple[Variable, ...]
    tokens: tuple[tuple[str, ...], ...] = ()
    guessed: Mapping[str, str] | None = None
    table: bool = False


def choose(files: Sequence[DataFile], inputs: str = "", targets: str = "", tokens: str = "", ahead: int = 0) -> Choice:
    """Finds the variables that are named, and guesses the rest.

    Arguments:
        inputs: Names, separated by commas; empty to guess.
        targets: Names, separated by commas; empty to guess.
        tokens: Columns of each token, tokens separated by semicolons.
        ahead: Whether the target may be the input itself, later.
    """
    if tokens and inputs:
        raise InputError("--tokens and --input must not both be given; --tokens names the input columns itself.")
    guessed: dict[str, str] = {}
    grouped = _tokens(tokens) if tokens else ()
    named = _names(inputs, "--input") if inputs else [n for group in grouped for n in group]
    wanted = _names(targets, "--target") if targets else []
    both = sorted(set(named) & set(wanted))
    if both and not ahead:
        raise InputError(f"the target must not be among the inputs, got {both[0]!r} as both; name another one.")
    for name in (*named, *wanted):
        find_variable(files, name)
    usable = {n: v for f in files for n, v in f.variables.items() if v.numeric and v.shape != ()}
    if not wanted:
        wanted = _guess_target(files, usable, named, ahead)
        guessed["--target"] = ",".join(wanted)
    if not named:
        if any(f.table for f in files):
            grouped = _guess_tokens([n for n in usable if n not in wanted])
            named = [n for g in grouped for n in g] or _guess_columns(files, usable, wanted)
            guessed["--tokens" if grouped else "--input"] = (
                ";".join(",".join(g) for g in grouped) if grouped else ",".join(named)
            )
        else:
            named = _guess_input(files, usable, wanted, ahead)
            guessed["--input"] = ",".join(named)
    return Choice(
        tuple(find_variable(files, n) for n in named),
        tuple(find_variable(files, n) for n in wanted),
        grouped,
        guessed,
        table=all(f.table for f in files),
    )


def _names(text: str, option: str) -> list[str]:
    names = [n.strip() for n in text.split(",")]
    if not all(names):
        raise InputError(f"{option} must hold names separated by commas, got {text!r}; write for example {option} u,v.")
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InputError(f"{option} must name every variable once, got {twice[0]!r} twice; leave one out.")
    return names


def _tokens(text: str) -> tuple[tuple[str, ...], ...]:
    groups = tuple(tuple(_names(part, "--tokens")) for part in text.split(";") if part.strip())
    if not groups:
        raise InputError(f"--tokens must hold column names, got {text!r}; write for example 'E1,px1;E2,px2'.")
    if len({len(g) for g in groups}) > 1:
        raise InputError(
            f"--tokens must all have as many columns, got {', '.join(str(len(g)) for g in groups)}; "
            "separate tokens by semicolons."
        )
    return groups


def _called(names: Sequence[str], usual: str) -> str | None:
    """The name, without its group, that comes first in a list of usual ones."""
    by_lower = {n.split("/")[-1].lower(): n for n in reversed(names)}
    return next((by_lower[name] for name in usual.split() if name in by_lower), None)


def _guess_target(
    files: Sequence[DataFile], usable: Mapping[str, Variable], named: Sequence[str], ahead: int
) -> list[str]:
    rest = [n for n in usable if n not in named]
    if ahead and named:
        return list(named)
    if ahead and len(usable) == 1:
        return list(usable)
    if later := _later(rest, named):
        return later
    if (found := _called([n for n in rest if not _coordinate(n, usable)], _TARGETS)) is not None:
        return [found]
    if len(rest) == 1 and named:
        return rest
    if len(usable) == 2 and len(rest) == 2 and not any(f.table for f in files):
        found = _called(rest, _INPUTS)
        return [n for n in rest if n != found][-1:]  # a pair; in the order of the file where names say nothing
    hint = "; --ahead 1 makes it its own target one sample later" if len(usable) == 1 else ""
    raise InputError(
        f"--target must be named, got none; {' and '.join(str(f.path) for f in files)} "
        f"holds: {', '.join(f.describe() for f in files)}{hint}{_unusable(files)}."
    )


def _later(rest: Sequence[str], named: Sequence[str]) -> list[str]:
    """The next states, in the order of the states: q_next beside q; none where some other variable has no such twin."""
    now = {m[1] or m[2]: n for n in rest if (m := _LATER.fullmatch(n))}
    states = named or [n for n in rest if n not in now.values()]
    return [now[n] for n in states] if now and set(states) == set(now) else []


def _coordinate(name: str, names: Iterable[str]) -> bool:
    """Whether a y is a coordinate and not a target: beside x and z, or where other names end in x and y, too."""
    if name.lower() != "y":
        return False
    lower = {n.lower() for n in names}
    return "z" in lower or any("y" in n and n != "y" and n.replace("y", "x") in lower for n in lower)


def _unusable(files: Sequence[DataFile]) -> str:
    """Why some variables were not considered."""
    reasons = [v.unusable for f in files for v in f.variables.values() if not v.numeric]
    return (
        f"; not usable: {reasons[0]}" + (f", and {len(reasons) - 1} more" if len(reasons) > 1 else "")
        if reasons
        else ""
    )


def _guess_input(
    files: Sequence[DataFile], usable: Mapping[str, Variable], wanted: Sequence[str], ahead: int
) -> list[str]:
    if ahead:
        return list(wanted)
    rest = [n for n in usable if n not in wanted]
    if (found := _called(rest, _INPUTS)) is not None:
        return [found]
    if len(rest) == 1:
        return rest
    target = usable[wanted[0]]
    same = [n for n in rest if usable[n].shape == target.shape and usable[n].dims == target.dims]
    if same and len(same) == len(rest):
        return same
    raise InputError(
        f"--input must be named, got none; the file holds: {', '.join(f.describe() for f in files)}{_unusable(files)}."
    )


def _guess_tokens(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Four-momenta with a number at the end: E1, px1, py1, pz1, E2, ..."""
    numbered: dict[str, dict[str, str]] = {}
    for name in names:
        match = re.fullmatch(r"([A-Za-z]+)_?(\d+)", name)
        if match:
            numbered.setdefault(match[2], {})[match[1].lower()] = name
    groups = []
    for stems in numbered.values():
        found = [next((stems[s] for s in choices if s in stems), None) for choices in _MOMENTUM]
        if all(found):
            groups.append(tuple(str(n) for n in found))
    return tuple(groups)


def _guess_columns(files: Sequence[DataFile], usable: Mapping[str, Variable], wanted: Sequence[str]) -> list[str]:
    rest = [n for n in usable if n not in wanted]
    if not (2 if _unusable(files) else 1) <= len(rest) <= _MOST_COLUMNS:
        raise InputError(
            f"--input or --tokens must name the input columns, got none and {len(rest)} to choose from: "
            f"{', '.join(f.describe() for f in files)}{_unusable(files)}."
        )
    return rest
