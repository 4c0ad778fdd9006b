"""Processor seconds and peak memory of discoveries, each in a process of its own on one thread.

    python benchmarks/speed.py                       every task, and LieGG and LieGAN where they can do it
    python benchmarks/speed.py --only heat-three vectors-6
    python benchmarks/speed.py --no-rivals           ours alone, minutes

Seconds are those of the processor after the imports; studies make or read their data in them. `import` is a fresh
process that imports the library and finds the group of a small vector problem. Beside each stands the figure of the
first edition, where there is one, and how many times longer rivals take.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], str]
"""A discovery; gives the name of the group."""


@dataclass(frozen=True)
class Task:
    """What is measured.

    Arguments:
        make: From a seed, data and what to do with them.
        earlier: Seconds of the first edition, where they were measured.
        goal: Seconds that are asked for.
        contest: The comparison whose rivals can do the same task, with settings.
    """

    make: Callable[[int], Work]
    earlier: float | None = None
    goal: float | None = None
    contest: tuple[str, dict] | None = None


def first_discovery(seed: int) -> Work:
    """All that a fresh process does before and during its first discovery."""

    def work() -> str:
        import torch

        import atlasd

        x = torch.randn(500, 2, generator=torch.Generator().manual_seed(seed))
        return atlasd.discover(x, function=lambda v: v.norm(dim=-1), seed=seed).group.name

    return work


def study(name: str, **values: object) -> Callable[[int], Work]:
    """A study as `atlasd run` does it, its data included."""

    def make(seed: int) -> Work:
        from importlib import import_module

        from atlasd.runtime.progress import Silent
        from atlasd.studies.config import configure

        module = import_module(f"atlasd.studies.{name}.run")
        config = configure(module.CONFIG, values)
        return lambda: module.run(config, seed, Silent())[0].group.name

    return make


def vectors(n: int, samples: int) -> Callable[[int], Work]:
    """The norm of vectors, given as a function."""

    def make(seed: int) -> Work:
        import torch

        import atlasd

        x = torch.randn(samples, n, generator=torch.Generator().manual_seed(seed))
        return lambda: atlasd.discover(x, function=lambda v: v.norm(dim=-1), seed=seed).group.name

    return make


def finite(seed: int) -> Work:
    """The symmetries of a cube."""
    import torch

    import atlasd

    x = torch.randn(1500, 3, generator=torch.Generator().manual_seed(seed))
    return lambda: atlasd.discover(x, function=lambda v: (v**4).sum(-1), seed=seed).group.name


def nonlinear(seed: int) -> Work:
    """Waves on 64 x 64 pixels, and a half of the square of their gradient beside their Laplacian."""
    import torch

    import atlasd
    from atlasd.geometry.actions import gradient
    from atlasd.studies.zoo.field_systems import draw_waves, laplacian, plane_waves

    x = plane_waves(*draw_waves(300, torch.Generator().manual_seed(seed)), size=64)
    y = 20 * laplacian(x) + 10 * sum(gradient(x, axis).square() for axis in (-2, -1))
    atlas = atlasd.Atlas.at([(20, 20), (20, 43), (43, 20), (43, 43)], in_radius=14, out_radius=10)
    return lambda: atlasd.discover(x, y, atlas=atlas, seed=seed).group.name


def solid(seed: int) -> Work:
    """Heat in a cube of 24 pixels: 200 sums of plane waves, some steps later."""
    import torch
    from torch.nn.functional import pad

    import atlasd

    generator = torch.Generator().manual_seed(seed)
    wave = 0.35 * torch.randn(200, 6, 3, generator=generator)
    phase = 2 * torch.pi * torch.rand(200, 6, 1, 1, 1, generator=generator)
    p = torch.stack(torch.meshgrid(*[torch.arange(24.0)] * 3, indexing="ij"), dim=-1)
    x = torch.cos(torch.einsum("nwd,ijkd->nwijk", wave, p) + phase).mean(1, keepdim=True)
    y = x
    for _ in range(4):
        wide = pad(y, (1,) * 6, mode="replicate")
        around = [wide.narrow(a, s, 24) for a in (2, 3, 4) for s in (0, 2)]
        inner = [z[(..., *(slice(None) if z.shape[b] == 24 else slice(1, 25) for b in (2, 3, 4)))] for z in around]
        y = y + 0.12 * (sum(inner) - 6 * y)
    return lambda: atlasd.discover(x, y, seed=seed).group.name


TASKS: dict[str, Task] = {
    "import": Task(first_discovery, 6.0, 3.0),
    "heat-nineteen": Task(study("heat"), 26.0, 10.0, ("heat", {})),
    "heat-three": Task(study("heat", atlas="three"), None, None, ("heat", {"atlas": "three"})),
    "heat-isotropic": Task(study("heat", initial="isotropic")),
    "nonlinear-64": Task(nonlinear),
    "field-3d": Task(solid, 90.0, 30.0),
    "vectors-2": Task(vectors(2, 1000)),
    "vectors-4": Task(vectors(4, 4000)),
    "vectors-6": Task(vectors(6, 6000), 200.0, 30.0),
    "vectors-8": Task(vectors(8, 6000), None, 60.0),
    "finite": Task(finite),
    "dimuons": Task(study("dimuons"), 21.0, 10.0, ("dimuons", {})),
    "jets": Task(study("jets"), None, None, ("top-tagging", {})),
    "digits": Task(study("digits"), None, None, ("sphere-mnist", {})),
}
RIVALS = ("LieGG", "LieGAN")


def child(name: str, seed: int) -> None:
    """Does one task and prints what it took."""
    started = time.process_time()
    work = TASKS[name].make(seed)
    if name != "import":
        import torch

        torch.set_num_threads(1)
        started = time.process_time()
    group = work()
    seconds = time.process_time() - started
    from atlasd.runtime.memory import peak_megabytes

    print(json.dumps({"task": name, "seconds": seconds, "peak_mb": peak_megabytes(), "group": group}))


def rival(name: str, method: str, seed: int) -> None:
    """Lets a rival do the task on the predictors that ours has, and prints what it took."""
    from atlasd.studies.config import configure
    from atlasd.studies.rivals.compare import Task, find_contest, perform

    asked = TASKS[name].contest
    assert asked is not None
    contest = find_contest(asked[0])
    done = perform(Task(contest.name, method, configure(contest.config, asked[1]), seed))
    print(json.dumps({"seconds": done["seconds"], "peak_mb": done["peak_mb"]}))


def _alone(*arguments: str, limit: float) -> dict | None:
    """The last line that a process of its own prints, or nothing where it takes too long."""
    command = [sys.executable, __file__, "--child", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, seed: int, *, rivals: bool, limit: float) -> dict:
    """One row: ours, and what rivals take relative to it."""
    task = TASKS[name]
    row = _alone(name, str(seed), limit=limit) or {"task": name, "seconds": None, "peak_mb": None, "group": "no answer"}
    row |= {"earlier": task.earlier, "goal": task.goal}
    for method in RIVALS if rivals and task.contest else ():
        other = _alone(name, str(seed), method, limit=limit)
        known = other is not None and row["seconds"]
        row[method] = other["seconds"] / row["seconds"] if other is not None and known else None
    return row


def _number(value: float | None, digits: int = 1, sign: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{sign}"


def main(arguments: list[str] | None = None) -> int:
    """Measures the tasks and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(TASKS), metavar="NAME", default=list(TASKS))
    parser.add_argument("--no-rivals", action="store_true", help="ours alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds by the clock after which a process ends")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        name, seed, *method = options.child
        if method:
            rival(name, method[0], int(seed))
        else:
            child(name, int(seed))
        return 0
    rows = []
    if not options.json:
        print("task              seconds  earlier   goal     MB   LieGG  LieGAN  group")
    for name in options.only:
        row = measure(name, options.seed, rivals=not options.no_rivals, limit=options.limit)
        rows.append(row)
        if not options.json:
            cells = [f"{name:<16}", f"{_number(row['seconds'], 2):>8}", f"{_number(row['earlier']):>8}"]
            cells += [f"{_number(row['goal'], 0):>6}", f"{_number(row['peak_mb'], 0):>6}"]
            cells += [f"{_number(row.get(method), 1, 'x'):>7}" for method in RIVALS]
            print(" ".join(cells), f" {row['group']}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
