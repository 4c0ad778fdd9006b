"""Whether targets transform with the inputs: the questions that fit their shape, and which answer to take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import torch

from atlasd.discovery.problem import Problem, solve
from atlasd.discovery.residual import Residual
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, Representation, VectorAction
from atlasd.geometry.stacked import Stacked
from atlasd.runtime.progress import Progress

KINDS = ("vector", "covector", "trivial")
Targets: TypeAlias = str | Sequence[str] | Representation | None
"""`auto`, kinds that are to be tried, a representation, or `None` for what the action says."""

_APART = 4.0
"""How much more a question must be broken than the best, as a ratio of squares, to be set aside at first sight."""
_OPEN = 0.1
"""A residual at first order, as a ratio of squares, up to which every question stays open."""
_LOOKS = 110
"""First looks at a map of fields that an answer takes: 80 to 150 on all kinds of maps that were measured."""
_DISCRETE = 0.2, 2.0
"""What the discrete part and all after it take, in units of one question, for fields and for vectors."""
_WORTH_SAYING = 5.0
"""Seconds from which on the time left is said."""


@dataclass(frozen=True)
class Question:
    """One way in which matrices may act on inputs and outputs.

    Arguments:
        kind: `vector`, `covector` or `trivial`.
        words: How the targets are taken, for people.
    """

    kind: str
    action: Action
    words: str


def check_targets(given: Targets) -> tuple[str, ...]:
    """Kinds of targets that are to be tried, as far as they fit; empty for what the action says.

    Example:
        >>> check_targets("auto"), check_targets("covector")
        (('vector', 'covector', 'trivial'), ('covector',))
    """
    if given is None or callable(given):
        return ()
    if isinstance(given, str):
        names: tuple[str, ...] = KINDS if given == "auto" else (given,)
    else:
        names = tuple(given) if isinstance(given, Sequence) else ()
    wrong = [n for n in names if n not in KINDS]
    if wrong or not names:
        got = repr(wrong[0] if wrong else given)
        raise InputError(f"`rho_out` must be auto, {', '.join(KINDS)} or a function of matrices, got {got}.")
    return names


def questions(problem: Problem, action: Action | None, given: Targets) -> list[Question]:
    """The questions that were asked for and fit the shape of the targets, those about invariants last.

    Arguments:
        action: The action that was given; `None` for the plain one.
        given: How the targets are to be taken.
    """
    base = problem.action if action is None else action
    if callable(given) or not isinstance(base, GridAction | VectorAction):
        return []
    kinds = check_targets(given)
    outputs, n = len(problem.units.outputs), problem.samples.size
    fits = outputs > 0 and outputs % n == 0
    if not kinds or problem.classes or (given == "auto" and not _open(problem, action, fits)):
        return []
    if not fits and not (set(kinds) & {"trivial"}):
        raise InputError(
            f"`rho_out` must be trivial unless the number of outputs is a multiple of {n}, got {outputs} outputs."
        )
    if isinstance(base, VectorAction):
        return [_of_vectors(k, outputs // max(n, 1), outputs) for k in kinds if fits or k == "trivial"]
    return [q for k in kinds if fits or k == "trivial" for q in _of_fields(k, problem, base, action is not None)]


def as_said(words: str, n: int, channels: int, outputs: int) -> tuple[Representation | None, Representation | None]:
    """The representations of inputs and outputs that the words of a question stand for; `None` for scalars.

    Arguments:
        words: What `Question.words` says, or anything else.
        channels: Channels of fields; 0 for vectors.
        outputs: Channels or numbers that go out.
    """
    copies = outputs // n
    if not channels:
        kinds = [q for k in KINDS[:2] if copies and (q := _of_vectors(k, copies, outputs)).words == words]
        return None, getattr(kinds[0].action, "rho_out", None) if kinds else None
    for rho, convention in _conventions(n):
        moved = rho(channels // n, False) if channels % n == 0 else None
        if words == f"invariants of vectors, {convention}":
            return moved, None
        if words == f"components of vectors, {convention}":
            return moved, rho(copies, False)
    return None, None


def at_first_sight(problem: Problem, samples: int = 24) -> float:
    """The least residual of any generator at first order, relative to what moves: large where no symmetry can be."""
    residual, null = (m.sum(0) for m in Residual(problem, problem.pick(samples)).slopes())
    values, _, _ = solve(residual, null)
    return float(values[0]) if len(values) else 1.0


def say_time(posed: Sequence[Problem], shown: Progress) -> None:
    """Says how long the questions may take, from a look at one of them; the first of two looks wakes the workers."""
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        at_first_sight(posed[0])
        seconds.append(time.perf_counter() - started)
    _say_left(_LOOKS * len(posed) * min(seconds), "by a first look at the map", shown)


def say_rest(seconds: float, questions: int, is_field: bool, shown: Progress) -> None:
    """Says how long the rest may take, from the time that one question took.

    Arguments:
        questions: Questions that are still to be asked.
        is_field: Whether inputs are fields: for them the discrete part is quick.
    """
    _say_left((questions + (_DISCRETE[0] if is_field else _DISCRETE[1])) * seconds, "by the search before", shown)


def _say_left(seconds: float, why: str, shown: Progress) -> None:
    if seconds > _WORTH_SAYING:
        shown.say(f"about {seconds:.0f} s left, {why}")


def at_first(problem: Problem, posed: Sequence[Problem]) -> list[float]:
    """For every question what `at_first_sight` says; on vectors, where all are cheap, 0."""
    return [at_first_sight(p) if len(posed) > 1 and problem.is_field else 0.0 for p in posed]


def set_aside(value: float, best: float, *, confirmed: bool) -> str:
    """Why a question is not pursued, or nothing: on fields each costs a search.

    Arguments:
        value: The least residual of the question at first order.
        best: That of the best question.
        confirmed: Whether a better question has been answered with a symmetry; otherwise first order, which may be
            wrong by much, closes no question that is broken by little.
    """
    limit = _APART * best if confirmed else max(_APART * best, _OPEN)
    return f"at first order broken by {value**0.5:.0%}" if value > limit else ""


def _open(problem: Problem, action: Action | None, fits: bool) -> bool:
    """Whether the shape leaves it open how inputs or targets move, and nobody has said."""
    if action is not None:
        return False
    return fits if not problem.is_field else fits or problem.samples.x.shape[1] % problem.size == 0


def _of_vectors(kind: str, copies: int, outputs: int) -> Question:
    if kind == "trivial":
        return Question(kind, VectorAction(), _invariants(outputs, "numbers"))
    number = "a" if copies == 1 else f"{copies}"
    words = f"components of {number} {kind}{'s' if copies > 1 else ''} that transform{'s' if copies == 1 else ''} along"
    return Question(kind, VectorAction(rho_out=Stacked(copies, dual=kind == "covector")), words)


def _of_fields(kind: str, problem: Problem, base: GridAction, given: bool) -> list[Question]:
    """Questions about fields; where the inputs may be components of vectors too, in every usual convention."""
    n, outputs, channels = problem.samples.size, len(problem.units.outputs), problem.samples.x.shape[1]
    dual = kind == "covector"
    moves_in = not given and channels % n == 0
    if kind == "covector" and not given:  # a field of covectors differs only under groups that a plane rarely has
        return []
    if kind == "trivial":
        plain = [Question(kind, base, _invariants(outputs, "channels"))]
        if not moves_in or outputs % n == 0:
            return plain
        made = [(replace(base, rho_in=rho(channels // n, False)), said) for rho, said in _conventions(n)]
        return [*(Question(kind, a, f"invariants of vectors, {said}") for a, said in made), *plain]
    made = []
    for rho, said in _conventions(n):
        if not moves_in and base.rho_in is not None and not _holds(base.rho_in, rho(1, False), n):
            continue  # one file, one convention
        rho_in = rho(channels // n, False) if moves_in else base.rho_in
        made.append((replace(base, rho_in=rho_in, rho_out=rho(outputs // n, dual)), said))
    return [Question(kind, a, f"components of {kind}s, {said}") for a, said in made]


def _conventions(n: int) -> list[tuple[Callable[[int, bool], Stacked], str]]:
    """Orders and senses in which components of vectors on a grid are stored."""

    def made(reverse: bool, upward: bool) -> Callable[[int, bool], Stacked]:
        return lambda copies, dual: Stacked(copies, dual, reverse, upward)

    first = [(made(False, False), "in the order of the axes")]
    if n != 2:
        return [*first, (made(True, False), "in the opposite order of the axes")]
    return [
        (made(True, False), "along columns first, then along rows"),
        (made(True, True), "along columns first, then against the order of the rows"),
        *first,
    ]


def _holds(whole: Representation, part: Representation, n: int) -> bool:
    """Whether some `n` channels, in their order, transform as `part`."""
    g = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    large, small = whole(g), part(g)
    places = combinations(range(len(large)), n)
    return any(torch.allclose(large[list(p)][:, list(p)], small) for p in places)


def _invariants(outputs: int, what: str) -> str:
    return "an invariant" if outputs == 1 else f"{outputs} invariant {what}"
