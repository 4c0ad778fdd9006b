"""The demonstration: a few small experiments, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atlasd.runtime.progress import Progress
from atlasd.studies.record import Draw, Recorded, execute, plan_run


@dataclass(frozen=True)
class DemoStep:
    """One experiment of the demonstration."""

    experiment: str
    title: str
    settings: tuple[str, ...] = ()


DEMO: tuple[DemoStep, ...] = (
    DemoStep("dimuons", "6,000 real muon pairs of the LHC: what leaves their mass as it is?", ("samples=6000",)),
    DemoStep("heat", "Heat flow, 19 charts: what is the local symmetry?", ("samples=300",)),
)


def run_demo(
    out: Path, seed: int, progress: Progress, draw: Draw | None = None, *, tolerance: float | None = None
) -> Iterator[tuple[DemoStep, Recorded]]:
    """Runs every step into its own directory below `out`; all are checked before the first starts."""
    more = () if tolerance is None else (f"tolerance={tolerance}",)
    plans = [plan_run(step.experiment, (*step.settings, *more), seed=seed, out=out / step.experiment) for step in DEMO]
    for number, (step, plan) in enumerate(zip(DEMO, plans, strict=True), start=1):
        progress.say(f"{number} of {len(DEMO)}: {step.title}")
        yield step, execute(plan, progress, draw)
