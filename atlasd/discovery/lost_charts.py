"""A discovery in which some charts could not be worked on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from atlasd.discovery.result import ChartFinding, Discovery
from atlasd.geometry.atlas import Atlas


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
