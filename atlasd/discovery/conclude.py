"""What the verdict says, and what it says of every chart."""

from __future__ import annotations

__all__ = ["chart_findings", "conclude", "describe_extent", "without_lost_charts"]

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.discovery.judge import SIZES, Judged
from atlasd.discovery.result import ChartFinding, Direction, Discovery, Verdict
from atlasd.discovery.search import Found
from atlasd.discovery.setup import Setup
from atlasd.discovery.verdict import Gates
from atlasd.geometry.atlas import Atlas


def chart_findings(setup: Setup, judged: Judged) -> tuple[ChartFinding, ...]:
    """Every chart's error under the pooled group, and whether it stands apart."""
    skills = setup.predictor.chart_skill
    charts = setup.samples.atlas.charts
    if judged.evidence:
        errors = torch.stack([e.charts for e in judged.evidence]).amax(0)
    else:
        errors = torch.full((len(charts),), float("nan"), dtype=torch.float64)
    lone = setup.problem.apart(errors.nan_to_num(0.0)).tolist() if len(charts) > 1 else [False]
    shape = tuple(setup.samples.x.shape[2:])
    findings = []
    for chart, error, skill, apart in zip(charts, errors.tolist(), skills.tolist(), lone, strict=True):
        reason = ""
        if apart and skill < 0.1:
            reason = f"its predictor has no skill ({skill:.2f})"
        elif apart:
            reason = f"error {error:.2f}, more than its predictor (skill {skill:.2f}) explains"
        findings.append(ChartFinding(tuple(chart.locate(shape)), error, apart, skill, reason))
    return tuple(findings)


def describe_extent(a: Tensor, extent: float) -> str:
    """How far a generator was seen to hold: in degrees for rotations, as |t| for others.

    Example:
        >>> describe_extent(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), 1.05)
        'rotations up to about 60 degrees'
        >>> describe_extent(torch.eye(2), 0.4)
        'sizes up to |t| about 0.4'
    """
    # A turn in one plane: antisymmetric, of rank 2. Within about 6 degrees of one is near enough for the word.
    largest = torch.linalg.svdvals(a)
    plane = float((a + a.mT).norm()) < 0.2 * float(a.norm()) and bool((largest[2:] < 0.1 * largest[0]).all())
    if plane:
        return f"rotations up to about {5 * round(math.degrees(extent) / 5)} degrees"
    return f"sizes up to |t| about {extent:.2g}"


def _first_order(judged: Judged) -> str:
    """Which generators were judged by derivatives alone."""
    only = [a for a, e in zip(judged.algebra.basis, judged.evidence, strict=True) if e.first_order]
    if not only:
        return ""
    names = (
        "the scaling" if len(only) == 1 and _is_scaling(only[0]) else f"{len(only)} of {len(judged.kept)} generators"
    )
    return f" Judged at first order only: {names}, as motions of finite size leave the data."


def _is_scaling(a: Tensor) -> bool:
    n = len(a)
    return float(a.diagonal().sum().abs()) > 0.99 * n**0.5 * float(a.norm())


def conclude(
    gates: Gates,
    judged: Judged,
    group: Group,
    cosets: list[Direction],
    rejected: list[Direction],
    found: Found,
) -> Verdict:
    """The sentence that carries the answer, with the evidence."""
    refusal = gates.refusal()
    symmetric = group.dimension > 0 or group.order > 1
    notes = "".join(f" Note: {n}." for n in found.notes)
    if found.not_testable:
        notes += f" {found.not_testable} direction(s) could not be tested: nothing in the data feels them."
    beyond = [d.reason for d in rejected if d.decision == "not testable"]
    if beyond and refusal is None:
        # The element with the fewest signs turned says most.
        first = min(beyond, key=lambda reason: (not reason.startswith("diag"), reason.count("-1")))
        notes += f" Not testable: {first}" + (f", and {len(beyond) - 1} more." if len(beyond) > 1 else ".")
    if refusal is not None:
        reason = f"{refusal[0].capitalize()}: {refusal[1]}."
    elif symmetric:
        worst = max((d.upper for d in (*judged.kept, *cosets)), default=0.0)
        reason = f"The map commutes with {group.name}: largest error bound {worst:.4f} on held-out data."
        extents = [(d.extent, k) for k, d in enumerate(judged.kept) if d.extent is not None]
        if extents and min(extents)[0] < max(SIZES):
            extent, k = min(extents)
            reason += f" Seen to hold for {describe_extent(judged.algebra.basis[k], extent)}."
        reason += _first_order(judged)
    elif any(d.decision == "cannot tell" for d in judged.dropped):
        reason = "Cannot tell: " + next(d.reason for d in judged.dropped if d.decision == "cannot tell") + "."
    elif found.spectrum and found.spectrum[0] < 2 * (1 - gates.skill):  # both sides carry the predictor's noise
        reason = (
            f"Cannot tell: the predictor leaves {1 - gates.skill:.0%} of the map unexplained, which alone can make "
            f"the smallest error that was found ({found.spectrum[0]:.2f})."
        )
    else:
        lowest = f" (smallest first-order error {found.spectrum[0]:.3f})" if found.spectrum else ""
        reason = f"No symmetry: no direction commutes within the tolerance{lowest}."
    return Verdict(
        symmetric=symmetric and refusal is None,
        reason=reason + notes,
        directions=tuple(judged.kept),
        cosets=tuple(cosets),
        rejected=(*judged.dropped, *rejected),
        gates={
            "skill": gates.skill,
            "testable": gates.testable,
            "saturated": gates.saturated,
            **({"untrained": list(judged.controls)} if judged.controls else {}),
        },
    )


def without_lost_charts(found: Discovery, atlas: Atlas, lost: Mapping[int, str]) -> Discovery:
    """A discovery from some of the charts, as one of the whole atlas in which the lost charts are named.

    Arguments:
        found: What the other charts gave.
        atlas: All charts.
        lost: Numbers of the lost charts, and why they were lost.
    """
    others = iter(found.charts)
    nan = float("nan")
    charts = tuple(
        ChartFinding(tuple(chart.center), nan, True, nan, f"left out: {lost[k]}") if k in lost else next(others)
        for k, chart in enumerate(atlas.charts)
    )
    own = found.chart_generators
    if own is not None:
        whole = own.new_full((len(charts), *own.shape[1:]), nan)
        whole[[k for k in range(len(charts)) if k not in lost]] = own
        own = whole
    names = ", ".join(map(str, sorted(lost)))
    reason = f"{found.verdict.reason} Note: charts {names} were left out: {next(iter(lost.values()))}."
    return replace(found, charts=charts, chart_generators=own, verdict=replace(found.verdict, reason=reason))
