"""LieGG on the heat equation, with and without the hot block: what a global method sees (section 5.2, appendix D.5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.discover import discover
from atlasd.discovery.prepare import prepare
from atlasd.discovery.result import Discovery
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.config import RunConfig, asking, option, tolerance_option
from atlasd.studies.heat.data import heat_fields, heat_rate, simulate_heat
from atlasd.studies.heat.run import span_angle
from atlasd.studies.paper_figures import paper_figures
from atlasd.studies.record import Extras
from atlasd.studies.rivals.liegg import LieGG


@dataclass(frozen=True, kw_only=True)
class LieGGHeatConfig(RunConfig):
    """Settings of LieGG on the heat equation."""

    initial: Literal["isotropic", "separable"] = option("isotropic", "fields: plane waves, or the paper's")
    samples: int = option(60, "fields", least=20)
    operator: Literal["equation", "step"] = option("equation", "the Laplacian of order 8, or one simulated step")
    tolerance: float = tolerance_option()


CONFIG = LieGGHeatConfig


def run(config: LieGGHeatConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Singular values of the polarization matrix of the operator over the whole field, without and with source."""
    x = heat_fields(config.samples, initial=config.initial, generator=stream(seed, "heat", "fields")).double()
    # One chart as large as the field: the outermost pixels belong to the differences.
    atlas = Atlas.at([(64, 64)], in_radius=63, out_radius=59)
    search = LieGG()
    rows: list[dict[str, Any]] = []
    for source in (False, True):
        progress.say(f"LieGG {'with' if source else 'without'} the heat source")
        started = time.perf_counter()
        problem, _ = prepare(x, function=_operator(config, source), atlas=atlas, seed=seed, progress=progress)
        found = search.spectrum(problem, progress)
        rows.append(
            {
                "source": "with" if source else "without",
                **{f"singular value {i + 1}": v for i, v in enumerate(found.values.tolist())},
                "angle_deg": span_angle(LieAlgebra(found.directions[:1]), so(2)),
                "rows": found.rows,
                "seconds": time.perf_counter() - started,
            }
        )
    smallest = [row["singular value 1"] for row in rows]
    metrics = {
        "smallest_without": smallest[0],
        "smallest_with": smallest[1],
        "times_larger": smallest[1] / max(smallest[0], 1e-300),
        "angle_deg": rows[0]["angle_deg"],
        "rows": rows,
    }
    function = _operator(config, False)
    discovery = discover(
        x, function=function, atlas=atlas, search=search, cosets=False, **asking(config, seed, progress)
    )
    return discovery, Extras(metrics, paper_figures("liegg-heat"), {"input": x[0], "output": function(x[:1])[0]})


def _operator(config: LieGGHeatConfig, source: bool) -> Callable[[Tensor], Tensor]:
    if config.operator == "equation":
        return lambda u: heat_rate(u, source=source)
    return lambda u: simulate_heat(u, steps=1, source=source)
