"""Which group one gets for which tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from atlasd.algebra.identify import is_described
from atlasd.discovery.result import Direction, Discovery
from atlasd.report.figures import AMBER, BLUE, GREY, WIDTH, inline_svg, plots
from atlasd.report.sentences import MISSING, chosen_tolerance, share, strength
from atlasd.report.templates import part

_MOST_ROWS = 12


@dataclass(frozen=True)
class Step:
    """What one gets from one tolerance up to the next.

    Arguments:
        start: The tolerance at which it begins.
        dimension: Generators whose interval lies below it; `None` if no generator was measured.
        components: Elements whose interval lies below it, with the identity; `None` if no other was measured.
        answer: The group in words.
    """

    start: float
    dimension: int | None
    components: int | None
    answer: str


def tolerance_steps(discovery: Discovery) -> list[Step]:
    """The steps, the smallest tolerance first; ends that print alike are one step."""
    generators, elements = _measured(discovery)
    chosen = chosen_tolerance(discovery) or 0.0
    starts: dict[tuple[str, bool], float] = {("", True): 0.0}
    for d in (*generators, *elements):
        if d.upper <= 1:
            key = strength(d.upper), d.upper <= chosen
            starts[key] = max(d.upper, starts.get(key, 0.0))
    steps: list[Step] = []
    for start in sorted(set(starts.values())):
        dimension = _count(generators, start) if generators else None
        components = 1 + _count(elements, start) if elements else None
        if not steps or (dimension, components) != (steps[-1].dimension, steps[-1].components):
            steps.append(Step(start, dimension, components, _answer(discovery, start)))
    return steps


def _measured(discovery: Discovery) -> tuple[list[Direction], list[Direction]]:
    """Generators and elements that have an interval, kept or not; the identity is left out."""
    verdict = discovery.verdict
    others = [d for d in verdict.rejected if _known(d)]
    generators = [d for d in verdict.directions if _known(d)] + [d for d in others if d.extent is not None]
    # Files of schema 1 know no sensitivity, and do not say what a rejected one without extent was.
    lone = [d for d in others if d.extent is None and math.isfinite(d.sensitivity)]
    return generators, [d for d in verdict.cosets[1:] if _known(d)] + lone


def _known(d: Direction) -> bool:
    """Whether there is an interval."""
    return all(math.isfinite(v) for v in (d.strength, d.lower, d.upper))


def _count(directions: Sequence[Direction], tolerance: float) -> int:
    return sum(d.upper <= tolerance for d in directions)


def _answer(discovery: Discovery, tolerance: float) -> str:
    verdict = discovery.verdict
    kept = (*verdict.directions, *verdict.cosets[1:])
    inside = _count([d for d in kept if _known(d)], tolerance)
    more = _count([d for d in verdict.rejected if _known(d)], tolerance)
    name = "the group" if is_described(discovery.group.name) else discovery.group.name
    if not inside and not more:
        return "nothing is shown"
    if not inside or inside < len(kept):
        return f"part of {name}" if inside and not more else "not closed to a group"
    return name + (f" and {more} more" if more else "")


def tolerance_block(discovery: Discovery) -> str:
    """A step curve and a table; empty where nothing was measured."""
    chosen = chosen_tolerance(discovery)
    generators, elements = _measured(discovery)
    if chosen is None or not (generators or elements):
        return ""
    steps = tolerance_steps(discovery)
    panels = [
        (name, offset, [d.upper for d in found], [d.lower for d in found])
        for name, offset, found in (("dimension", 0, generators), ("components", 1, elements))
        if found
    ]
    verdict = discovery.verdict
    unmeasured = sum(not _known(d) for d in (*verdict.directions, *verdict.cosets[1:], *verdict.rejected))
    note = f" Not measured, and not counted here: {unmeasured}." if unmeasured else ""
    caption = (
        "Solid: intervals that lie below the tolerance. Dotted: those that are not excluded. Between the two, "
        f"these data cannot tell.{note} A run with another tolerance may judge transformations of other sizes."
    )
    ends = [step.start for step in steps[1:]] + [math.inf]
    current = max(k for k, step in enumerate(steps) if step.start <= chosen)
    # Many elements of a group have nearly the same strength: the rows around the chosen one say enough.
    first = max(0, min(current - _MOST_ROWS // 2, len(steps) - _MOST_ROWS))
    shown = [
        (_span(step.start, ends[k]), _number(step.dimension), _number(step.components), step.answer, k == current)
        for k, step in enumerate(steps)
        if first <= k < first + _MOST_ROWS
    ]
    counts = ", ".join(f"{name} {offset + sum(v <= chosen for v in uppers)}" for name, offset, uppers, _ in panels)
    words = f"At the chosen tolerance of {share(chosen)}: {counts}."
    drawing = inline_svg(_draw_tolerances(panels, chosen), words)
    return part("parts.html", "tolerances", drawing, caption, shown, share(chosen), len(steps) - len(shown))


def _draw_tolerances(panels: Sequence[tuple[str, int, Sequence[float], Sequence[float]]], chosen: float) -> Figure:
    """Counts against the tolerance, one panel above the other.

    Arguments:
        panels: For each a name, the count at tolerance 0, upper ends and lower ends of intervals.
        chosen: The tolerance that is marked.
    """
    drawn = plots(len(panels), 1, (WIDTH, 0.9 + 1.5 * len(panels)))
    for axes, (name, offset, uppers, lowers) in zip(drawn, panels, strict=True):
        for ends, colour, style, words in ((lowers, AMBER, ":", "not excluded"), (uppers, BLUE, "-", "shown")):
            inside = sorted(max(v, 0.0) for v in ends if v <= 1)
            counts = offset + np.arange(len(inside) + 1)
            axes.step(
                [0.0, *inside, 1.0], [*counts, counts[-1]], where="post", color=colour, linestyle=style, label=words
            )
        axes.axvline(chosen, color=GREY, linewidth=1.2, label=f"chosen, {share(chosen)}")
        # Small tolerances need more room than large ones.
        axes.set_xscale("function", functions=(np.sqrt, np.square))
        ticks = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
        axes.set_xticks(ticks, [f"{100 * tick:g}" for tick in ticks])
        axes.set_xlim(0.0, 1.0)
        axes.set_yticks(sorted({offset, offset + len(lowers)}))
        axes.set_ylabel(name)
    drawn[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False)
    drawn[-1].set_xlabel("tolerance, %")
    figure = drawn[0].get_figure()
    assert isinstance(figure, Figure)
    return figure


def _span(start: float, end: float) -> str:
    return f"from {strength(start)}" if math.isinf(end) else f"{100 * start:.1f} to {strength(end)}"


def _number(count: int | None) -> str:
    return MISSING if count is None else str(count)
