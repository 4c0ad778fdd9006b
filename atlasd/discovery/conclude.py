"""What the verdict says, and what it says of every chart."""

from __future__ import annotations

__all__ = ["chart_findings", "conclude", "without_lost_charts"]

from collections.abc import Mapping
from dataclasses import replace

import torch

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
        extents = [d.extent for d in judged.kept if d.extent is not None]
        if extents and min(extents) < max(SIZES):
            reason += f" Seen to hold up to |t| about {min(extents):g}."
    elif any(d.decision == "cannot tell" for d in judged.dropped):
        reason = "Cannot tell: " + next(d.reason for d in judged.dropped if d.decision == "cannot tell") + "."
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
