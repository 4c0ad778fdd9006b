"""Do the intervals hold? Random systems of known breaking, judged from outside.

Run: python benchmarks/calibration.py --systems 400 --workers 2 [--first 0] [--kind vector] [--door judge]

Every system is a symmetric map with a term of graded size that breaks it. The true strength comes from the exact map
on a large fresh sample of the same distribution, at the sizes at which the verdict judged. Printed by family: how often
the truth lies below the upper end and above the lower end, false claims, and detection.

Two doors lead to the intervals. `judge` asks the verdict about generators and elements that are given, so that the
search has no part in it; `discover` asks about what `atlasd.discover` claims.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import inspect
import json
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace

import torch
from calibration_systems import Trial, draw_trial
from torch import Tensor

import atlasd as ad
from atlasd.errors import InputError
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.zoo.scoring import exact_losses, standard_root, standard_size

FRESH = {"vector": 5_000, "field": 100}
"""Fresh samples for the true strength, drawn so often:"""
BATCHES = 8
SLACK = 0.005
"""Strength below which two values count as one: interpolation and single precision leave so much."""


@dataclass(frozen=True)
class Claim:
    """What the verdict says of one generator or element.

    Arguments:
        matrix: The generator or element, in the units of the data.
        generator: Whether it is a generator.
        strength: The estimate, an amplitude; `None` where it was not measured, as the two ends.
        decision: The decision.
        judged: Elements `(m, n, n)` that were judged, in the units of the data; `None` where the door does not say.
        covered: Tells which transformed inputs lie where data are; `None` for all.
    """

    matrix: Tensor
    generator: bool
    strength: float | None
    lower: float | None
    upper: float | None
    decision: str
    judged: Tensor | None = None
    covered: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Line:
    """One judged direction or element beside its truth."""

    index: int
    kind: str
    mode: str
    inputs: str
    samples: int
    noise: float
    breaking: float
    generator: bool
    truth: float
    error: float
    strength: float | None
    lower: float | None
    upper: float | None
    decision: str
    seconds: float

    @property
    def slack(self) -> float:
        """By how much the truth may miss an end: it is an estimate from fresh samples, too."""
        return max(SLACK, 2 * self.error)


def judge_given(trial: Trial, tolerance: float) -> list[Claim]:
    """The lower door: the verdict on given generators and elements. The one place that knows how it is asked."""
    from atlasd.discovery.prepare import prepare
    from atlasd.discovery.verdict import Judge

    problem, _ = prepare(
        trial.x, trial.y, function=trial.function, atlas=trial.system.atlas, action=trial.system.action,
        seed=trial.index, progress=Silent(),
    )  # fmt: skip
    judge = Judge(problem, tolerance, seed=trial.index, progress=Silent())
    units, coverage = problem.units, judge.residual.coverage
    findings = [
        *judge.generators(units.to_standard(trial.generators)),
        *judge.elements(units.to_standard(trial.elements)),
    ]
    matrices = [*((a, True) for a in trial.generators), *((g, False) for g in trial.elements)]
    covered = None
    if coverage is not None and trial.system.kind == "vector":
        covered = lambda x: coverage(units.inputs(x))[0]  # noqa: E731
    claims = []
    for finding, (matrix, generator) in zip(findings, matrices, strict=True):
        decisive = units.to_raw(finding.element)
        both = torch.stack([decisive, torch.linalg.inv(decisive)])
        claims.append(replace(read_direction(finding.direction, matrix, generator), judged=both, covered=covered))
    return claims


def judge_found(trial: Trial, tolerance: float) -> list[Claim]:
    """The front door: what a discovery claims."""
    options = {"tolerance": tolerance} if "tolerance" in inspect.signature(ad.discover).parameters else {}
    found = ad.discover(
        trial.x, trial.y, function=trial.function, atlas=trial.system.atlas, action=trial.system.action,
        seed=trial.index, progress=False, **options,
    )  # fmt: skip
    verdict = found.verdict
    generators = zip(verdict.directions, found.algebra.basis, strict=False)
    elements = zip(verdict.cosets, found.cosets[1:], strict=False)
    return [read_direction(d, m, True) for d, m in generators] + [read_direction(d, m, False) for d, m in elements]


def read_direction(d: object, matrix: Tensor, generator: bool) -> Claim:
    """Numbers of a verdict's direction; results of schema 1 hold squares."""

    def number(name: str, square: bool = False) -> float | None:
        value = getattr(d, name, None)
        if value is None or not math.isfinite(value):
            return None
        return math.copysign(math.sqrt(abs(value)), value) if square else float(value)

    old = not hasattr(d, "strength")
    return Claim(
        matrix=matrix,
        generator=generator,
        strength=number("error", True) if old else number("strength"),
        lower=number("lower", old),
        upper=number("upper", old),
        decision=str(getattr(d, "decision", "")),
    )


DOORS: dict[str, Callable[[Trial, float], list[Claim]]] = {"judge": judge_given, "discover": judge_found}


def true_strengths(trial: Trial, claims: list[Claim]) -> list[tuple[float, float]]:
    """Strengths from the exact map, with their standard errors by the jackknife over batches.

    Several elements are pooled, as an element and its inverse are in the verdict.
    """
    field = trial.system.kind == "field"
    root = torch.eye(2, dtype=torch.float64) if field else standard_root(trial.x)
    elements: list[Tensor] = []
    for claim in claims:
        matrix = claim.matrix[None].double()
        if claim.judged is not None:
            matrix = claim.judged
        elif claim.generator:
            sizes = torch.tensor([1.0, -1.0], dtype=torch.float64)[:, None, None]
            matrix = torch.matrix_exp(sizes * matrix / standard_size(matrix, root)[:, None, None])
        elements.append(matrix)
    generator = stream(trial.index, "calibration", "fresh")
    counts, every = [len(e) for e in elements], torch.cat(elements)
    sums = torch.stack(
        [
            torch.stack([
                torch.stack([part.sum() for part in z.split(counts)])
                for z in exact_losses(
                    trial.system, every, FRESH[trial.system.kind], generator, covered=claims[0].covered
                )
            ])
            for _ in range(BATCHES)
        ]
    )  # fmt: skip
    top, bottom = (sums.sum(0) - torch.cat([0 * sums[:1], sums])).unbind(1)  # all batches, then all but one
    strengths = (top / bottom).sqrt()
    errors = (BATCHES - 1) ** 0.5 * strengths[1:].std(0, correction=0)
    return list(zip(strengths[0].tolist(), errors.tolist(), strict=True))


def run_trial(index: int, kind: str, door: str, tolerance: float) -> list[Line]:
    """Draws one system, has it judged and compares."""
    torch.set_num_threads(1)
    trial = draw_trial(index, kind)
    started = time.perf_counter()
    try:
        claims = DOORS[door](trial, tolerance)
    except InputError as error:
        claims = []
        print(f"system {index}: refused, {error}", flush=True)
    seconds = time.perf_counter() - started
    truths = true_strengths(trial, claims) if claims else []
    return [
        Line(
            index, trial.family, trial.mode, trial.inputs, len(trial.x), trial.noise, trial.breaking, c.generator,
            truth, error, c.strength, c.lower, c.upper, c.decision, seconds,
        )
        for c, (truth, error) in zip(claims, truths, strict=True)
    ]  # fmt: skip


def families(lines: list[Line]) -> dict[str, list[Line]]:
    """Lines by every way of grouping them."""
    sizes = ((30, 100), (100, 1000), (1000, 100_000))
    groups = {"all": lines}
    for name in ("kind", "mode", "inputs"):
        for value in sorted({getattr(line, name) for line in lines}):
            groups[f"{name} {value}"] = [line for line in lines if getattr(line, name) == value]
    for low, high in sizes:
        groups[f"N from {low}"] = [line for line in lines if low <= line.samples < high]
    for value in sorted({line.noise for line in lines}):
        groups[f"noise {value:g}"] = [line for line in lines if line.noise == value]
    for generator, name in ((True, "generators"), (False, "elements")):
        groups[name] = [line for line in lines if line.generator == generator]
    return {name: group for name, group in groups.items() if group}


def summarise(lines: list[Line], tolerance: float) -> dict[str, float | int | None]:
    """Coverage, false claims and detection of some lines."""
    known = [line for line in lines if line.upper is not None and line.lower is not None and not math.isnan(line.truth)]
    broken = [line for line in lines if line.truth > tolerance]
    exact = [line for line in lines if line.truth < tolerance / 2]
    clear = [line for line in exact if line.samples >= 1000 and line.noise <= 0.1]

    def share(part: list[Line], whole: list[Line]) -> float | None:
        return round(100 * len(part) / len(whole), 1) if whole else None

    return {
        "systems": len({line.index for line in lines}),
        "judged": len(lines),
        "measured": len(known),
        "below upper": share([line for line in known if line.truth <= (line.upper or 0.0) + line.slack], known),
        "above lower": share([line for line in known if line.truth >= (line.lower or 0.0) - line.slack], known),
        "false claims": sum(line.decision == "symmetry" for line in broken),
        "of broken": len(broken),
        "false broken": sum(line.decision == "broken" for line in lines if line.truth < tolerance),
        "detected": share([line for line in exact if line.decision == "symmetry"], exact),
        "detected, clear": share([line for line in clear if line.decision == "symmetry"], clear),
    }


def table(lines: list[Line], tolerance: float) -> str:
    """One row for every family."""
    rows = {name: summarise(group, tolerance) for name, group in families(lines).items()}
    heads = list(next(iter(rows.values())))
    text = [f"{'':20}" + "".join(f"{h:>16}" for h in heads)]
    for name, row in rows.items():
        text.append(f"{name:20}" + "".join(f"{'-' if v is None else v:>16}" for v in row.values()))
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="the number of the first system")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kind", default="both", choices=["vector", "field", "both"])
    parser.add_argument("--door", default="judge", choices=sorted(DOORS))
    parser.add_argument("--tolerance", type=float, default=0.2)
    parser.add_argument("--lines", help="file for the single lines, one JSON object each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    started = time.perf_counter()
    lines: list[Line] = []
    numbers = range(options.first, options.first + options.systems)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        jobs = [pool.submit(run_trial, k, options.kind, options.door, options.tolerance) for k in numbers]
        for done, job in enumerate(as_completed(jobs), 1):
            lines += job.result()
            if not options.json and done % 20 == 0:
                print(f"{done} systems, {time.perf_counter() - started:.0f} s", flush=True)
    lines.sort(key=lambda line: line.index)
    if options.lines:
        with open(options.lines, "w") as file:
            file.writelines(json.dumps(asdict(line)) + "\n" for line in lines)
    if options.json:
        rows = {name: summarise(group, options.tolerance) for name, group in families(lines).items()}
        print(json.dumps({"families": rows, "seconds": time.perf_counter() - started}))
        return
    print(table(lines, options.tolerance) if lines else "nothing was judged")
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
