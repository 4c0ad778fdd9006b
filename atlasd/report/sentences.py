"""What a discovery says, in the words that the page, the notebook and the terminal share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.algebra.group_names import spoken
from atlasd.discovery.conclude import describe_extent
from atlasd.discovery.frames import Track
from atlasd.discovery.result import ChartFinding, Decision, Direction, Discovery, percent
from atlasd.report.templates import render

ENOUGH = 0.3
"""Coverage that frames need before a strength is shown: two of their six fields."""
MISSING = "–"
"""Stands where nothing was measured."""
NULL_LEVEL = "The null level, 100 %, is the residual between inputs and labels of different samples."
"""The one place that defines it."""
_HEADS: dict[str, Decision] = {"cannot tell": "cannot tell", "not testable": "not testable", "no symmetry": "broken"}


def headline(discovery: Discovery) -> tuple[str, Decision]:
    """The shortest answer, and the decision that it stands for."""
    if discovery.verdict.symmetric:
        return discovery.group.name, "symmetry"
    decision = _HEADS.get(discovery.headline.rstrip(".").lower())
    # Earlier versions gave their reason without a head.
    return ("No symmetry found", "broken") if decision is None else (discovery.headline, decision)


def answer_sentences(discovery: Discovery) -> list[str]:
    """The answer in words: what was found, how sure that is, how far it holds and where it fails."""
    decision = headline(discovery)[1]
    if decision == "symmetry":
        found = [_found(discovery), *_certainty(discovery), *_approximate(discovery)]
        return [*found, *_places(discovery), _predictor(discovery)]
    words = [discovery.verdict.reason]
    if decision == "broken":
        words.append(_predictor(discovery))
    elif decision == "cannot tell":
        words.append("More samples, or a predictor that fits better, may allow an answer.")
    else:
        words.append("Data or outputs that vary more would make a test possible.")
    return words


def _found(discovery: Discovery) -> str:
    group = discovery.group
    if not group.dimension:
        return f"The map commutes with the {group.components} elements of {group.name}."
    kinds = [describe_generator(a, axis_names(discovery)) for a in discovery.algebra.basis]
    named = f", {kinds[0]}" if len(kinds) == 1 and not kinds[0].startswith("a mix") else ""
    many = f"one continuous direction{named}," if group.dimension == 1 else f"{group.dimension} continuous directions"
    parts = "one component" if group.components == 1 else f"{group.components} components"
    return f"The map commutes with {spoken(group.name)}: {many} and {parts}."


def _certainty(discovery: Discovery) -> list[str]:
    judged = [d for d in (*discovery.verdict.directions, *discovery.verdict.cosets[1:]) if math.isfinite(d.upper)]
    if not judged:
        return []
    worst, limit = max(d.upper for d in judged), judged[0].tolerance
    words = [f"On held-out data the breaking is at most {strength(worst)}; the tolerance is {share(limit)}."]
    seen = min((d.sensitivity for d in judged if math.isfinite(d.sensitivity)), default=1.0)
    if seen < 1:
        words.append(f"Of a planted breaking, at least {share(seen)} would have been noticed.")
    pairs = zip(discovery.verdict.directions, discovery.algebra.basis, strict=False)
    extents = [(d.extent, describe_extent(a, d.extent)) for d, a in pairs if d.extent is not None]
    if extents:
        words.append(f"It was judged for {min(extents)[1]}.")
    return words


def _approximate(discovery: Discovery) -> list[str]:
    near = [strength(d.strength) for d in discovery.verdict.rejected if d.decision == "approximate"]
    if not near:
        return []
    many = "one more transformation" if len(near) == 1 else f"{len(near)} more transformations"
    listed = ", ".join(near[:4]) + (" and more" if len(near) > 4 else "")
    return [f"Approximately, it commutes with {many}, with a breaking of {listed}."]


def _places(discovery: Discovery) -> list[str]:
    charts = discovery.charts
    if len(charts) < 2:
        return []
    apart = [str(k) for k, c in enumerate(charts) if c.outlier and not c.dropped]
    dropped, agree = sum(c.dropped for c in charts), charts_that_agree(charts)
    used = len(charts) - dropped
    left = [f"{dropped} more {'was' if dropped == 1 else 'were'} dropped before."] if dropped else []
    if not apart:
        return [f"All {used} charts agree.", *left] if agree == used else left
    shown = ", ".join(apart[:12]) + (" and more" if len(apart) > 12 else "")
    subject = f"Chart {shown} is an outlier chart" if len(apart) == 1 else f"Charts {shown} are outlier charts"
    return [f"{subject}; {agree} of {used} charts agree.", *left]


def charts_that_agree(charts: Sequence[ChartFinding]) -> int:
    """Charts that were judged and are no outliers."""
    return sum(not c.outlier and math.isfinite(c.error) for c in charts)


def _predictor(discovery: Discovery) -> str:
    p = discovery.predictor
    if not p.samples:
        return "The map was given as a function, so nothing had to be learned."
    if not math.isfinite(p.skill):
        return "The skill of the predictor was not measured."
    return f"The predictor removes {share(p.skill)} of the error that trivial guesses leave."


def chart_reason(chart: ChartFinding) -> str:
    """Why a chart is an outlier; nothing where that would be a number that was not measured."""
    return "" if "nan" in chart.reason.lower().replace("%", " ").split() else chart.reason


def track_strengths(track: Track) -> list[float]:
    """Strength of the breaking at every step of a track, as a ratio of amplitudes; NaN where nothing was measured.

    Earlier versions kept residual and null level apart, so that the ratio serves both. Frames hold few samples: where
    most of them leave the data, the null level has no pairs left.
    """
    known = (track.null > 0) & (track.covered >= ENOUGH)
    ratio = torch.where(known, track.residual / track.null, math.nan)
    ratio = torch.where((track.residual == 0) & _still(track), 0.0, ratio)
    return ratio.double().clamp(0.0, 1.0).sqrt().tolist()


def _still(track: Track) -> Tensor:
    """Which steps are the identity."""
    identity = torch.eye(track.matrices.shape[-1], dtype=track.matrices.dtype)
    return (track.matrices - identity).abs().amax((-2, -1)) < 1e-9


def axis_names(discovery: Discovery) -> list[str]:
    """Names of the axes along which matrices act: those of the array or of the columns, or else numbers."""
    n = discovery.algebra.basis.shape[-1]
    config = discovery.config.get("discover", discovery.config)  # a run keeps it beside its own settings
    named = config.get("axes") if isinstance(config, Mapping) else None
    if isinstance(named, Sequence) and len(named) == n:
        return [str(name) for name in named]
    frames = discovery.frames
    if (frames is not None and frames.shape) or any(discovery.charts and len(c.center) == n for c in discovery.charts):
        return {2: ["row", "column"], 3: ["depth", "row", "column"]}.get(n, [str(k + 1) for k in range(n)])
    return [str(k + 1) for k in range(n)]


def describe_generator(a: Tensor, axes: Sequence[str] | None = None, tolerance: float = 0.05) -> str:
    """What a generator does, in a word, if one word is right to within `tolerance`.

    Example:
        >>> describe_generator(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        'a rotation'
        >>> describe_generator(torch.eye(3))
        'a scaling'
    """
    a = a.double() / a.double().norm().clamp_min(1e-300)
    n = len(a)
    names = list(axes) if axes is not None else [str(k + 1) for k in range(n)]
    if float((a - torch.eye(n).double() * a.diagonal().mean()).norm()) < tolerance:
        return "a scaling"
    if float((a - torch.diag(a.diagonal())).norm()) < tolerance:
        return "a stretch along the axes"
    i, j = divmod(int((a.abs() - 2 * torch.eye(n).double()).argmax()), n)
    i, j = min(i, j), max(i, j)
    pair = torch.zeros(n, n, dtype=torch.float64)
    pair[i, j], pair[j, i] = a[i, j], a[j, i]
    where = "" if n == 2 else f" of axes {names[i]} and {names[j]}"
    if float((a - pair).norm()) < tolerance:
        up, down = float(a[i, j]), float(a[j, i])
        if abs(up + down) < 2 * tolerance:
            return f"a rotation{where}"
        if abs(up - down) < 2 * tolerance:
            return f"a squeeze{where}" if n == 2 else f"a boost{where}"
        if min(abs(up), abs(down)) < tolerance:
            return f"a shear{where}"
    if float((a + a.mT).norm()) < 2 * tolerance:
        return "a rotation"
    return "a mix of transformations"


def strength(value: float) -> str:
    """A strength in per cent; a dash where nothing was measured.

    Example:
        >>> strength(0.0312), strength(math.nan)
        ('3.1 %', '–')
    """
    return percent(value) if math.isfinite(value) else MISSING


def interval(d: Direction) -> str:
    """The strength of a breaking with its confidence interval.

    Example:
        >>> interval(Direction(0.031, 0.0, 0.039, 1.0, 1.0, "symmetry", "", 0.2))
        '3.1 % (0.0 to 3.9 %)'
    """
    if not (math.isfinite(d.lower) and math.isfinite(d.upper) and math.isfinite(d.strength)):
        return strength(d.strength)
    # The scale ends at the null level; what lies beyond is noise.
    return f"{strength(d.strength)} ({100 * d.lower:.1f} to {strength(min(d.upper, 1.0))})"


def share(value: float) -> str:
    """A share in per cent, with as many digits as it needs; a dash where nothing was measured.

    Example:
        >>> share(0.983), share(0.021), share(math.nan)
        ('98 %', '2.1 %', '–')
    """
    if not math.isfinite(value):
        return MISSING
    if 0 < value < 1e-4:
        return "less than 0.01 %"
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.2g} %"


MARKS: dict[str, str] = {
    "symmetry": "✓",
    "approximate": "≈",
    "broken": "✕",
    "not testable": "∅",
    "cannot tell": "?",
    "left out": "−",
}
"""A sign for each decision: colour alone does not tell them apart."""
COLUMNS = ("", "decision", "breaking (confidence interval)", "sensitivity", "coverage", "why")
OTHERS = "Other transformations that were judged"


@dataclass(frozen=True)
class Row:
    """One transformation that was judged, ready to print.

    Arguments:
        name: `generator 1`, `coset 2` or `other 3`.
        decision: The decision in a word.
        breaking: Strength of the breaking with its confidence interval; a dash where nothing was measured.
        sensitivity: Share of a planted breaking that would have been noticed.
        coverage: Share of the transformed samples that lie where data are.
    """

    name: str
    decision: str
    breaking: str
    sensitivity: str
    coverage: str
    reason: str

    @property
    def sign(self) -> str:
        """The sign of the decision."""
        return MARKS[self.decision]


def judged_rows(discovery: Discovery) -> list[tuple[str, list[Row]]]:
    """Rows by heading; the identity is no finding and has none."""
    verdict = discovery.verdict
    groups = [
        ("Generators", [_row(f"generator {k + 1}", d) for k, d in enumerate(verdict.directions)]),
        ("Cosets", [_row(f"coset {k + 1}", d) for k, d in enumerate(verdict.cosets) if k]),
        (OTHERS, _others(verdict.rejected)),
    ]
    return [(heading, rows) for heading, rows in groups if rows]


def _others(rejected: Sequence[Direction]) -> list[Row]:
    """Approximate ones first; what did not get into the group is never called a symmetry."""
    ranked = sorted(rejected, key=lambda d: d.decision != "approximate")
    return [_row(f"other {k + 1}", d, kept=False) for k, d in enumerate(ranked)]


def _row(name: str, d: Direction, kept: bool = True) -> Row:
    decision = "left out" if d.decision == "symmetry" and not kept else d.decision
    return Row(name, decision, interval(d), _sensitivity(d), share(d.coverage), d.reason)


def _sensitivity(d: Direction) -> str:
    """Breakings are planted only where a symmetry may be claimed; elsewhere the figure is a default."""
    planted = d.sensitivity != 1.0 or d.decision in ("symmetry", "approximate")
    return share(d.sensitivity) if planted else MISSING


def chosen_tolerance(discovery: Discovery) -> float | None:
    """The tolerance of the verdict, or `None` if nothing was judged."""
    verdict = discovery.verdict
    judged = (*verdict.directions, *verdict.rejected, *verdict.cosets)
    given = [d.tolerance for d in judged if math.isfinite(d.tolerance)]
    return given[0] if given else None


_MOST_ROWS = 12


def notebook_html(discovery: Discovery) -> str:
    """A fragment that shows well on any background."""
    left, groups = _MOST_ROWS, []
    for heading, rows in judged_rows(discovery):
        if left > 0:
            groups.append((heading, rows[:left]))
        left -= len(rows)
    return render(
        "notebook.html",
        answer=headline(discovery)[0],
        sentences=answer_sentences(discovery),
        columns=COLUMNS,
        groups=groups,
        more=max(-left, 0),
    )
