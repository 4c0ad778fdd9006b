"""A run of a second with every stage, killed and continued; started by `test_resume.py` as a program.

`python small_run.py DIRECTORY KILLS SEED` prints one line of JSON: the number of kills, of runs that ended, and of
results that differ from the first, which was left alone.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import atlasd.studies as register
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.discover import discover
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.runtime.stages import NAME, resuming
from atlasd.studies.config import Config, option
from atlasd.studies.record import Extras, execute, plan_run


@dataclass(frozen=True, kw_only=True)
class SmallConfig(Config):
    samples: int = option(300, "vectors", least=20)


CONFIG = SmallConfig
SIGN = 1.0


def run(config, seed, progress):
    x = torch.randn(config.samples, 2, generator=stream(seed, "small"))
    y = x.square().sum(-1)
    y[10:] = x[10:, 0].square() + SIGN * x[10:, 1].square()
    found = discover(
        x,
        y,
        predictor=MLPPredictor(hidden=(16,), gated=True, schedule=Schedule(epochs=60, learning_rate=1e-2)),
        cosets=CosetSearch(starts=4, samples=64),
        seed=seed,
        progress=progress,
    )
    return found, Extras({"dimension": found.group.dimension})


def enlist():
    """Puts this module among the experiments."""
    register.EXPERIMENTS = (*register.EXPERIMENTS, register.Experiment("small", "a second", "small_run"))


def without_times(value):
    """The content of a result without seconds."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not k.endswith("seconds")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def work(directory):
    plan = plan_run("small", out=directory)
    if (directory / NAME / "manifest.json").is_file():
        with resuming():
            execute(plan, Silent())
    else:
        execute(plan, Silent())


def start(directory):
    """A process that works on the directory; forked, since nothing here has threads."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work(directory)
            status = 0
        finally:
            os._exit(status)
    return process


def main(place, kills, seed):
    torch.set_num_threads(1)
    enlist()
    chance = random.Random(seed)
    began = time.monotonic()
    work(place / "reference")
    began = time.monotonic()
    work(place / "reference")
    takes = time.monotonic() - began
    results, killed, number = [], 0, 0
    process, directory = start(place / "0"), place / "0"
    while True:
        time.sleep(chance.uniform(0, takes) if killed < kills else 0.01)
        over, status = os.waitpid(process, 0 if killed >= kills else os.WNOHANG)
        if not over:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        elif status:
            raise SystemExit(f"a run failed with status {status}")
        else:
            left = {p.name for p in directory.iterdir()}
            assert "result.json" in left and NAME not in left and not any(n.startswith(".") for n in left), left
            results.append(without_times(json.loads((directory / "result.json").read_text())))
            if killed >= kills:
                break
            number += 1
            directory = place / str(number)
        process = start(directory)
    reference = without_times(json.loads((place / "reference" / "result.json").read_text()))
    different = sum(result != reference for result in results)
    print(json.dumps({"kills": killed, "ended": len(results), "different": different, "seconds": takes}))


if __name__ == "__main__":
    sys.modules["small_run"] = sys.modules["__main__"]
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
