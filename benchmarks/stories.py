"""Data that nobody prepared: each story is one file and one command with defaults, beside its negative control.

python benchmarks/stories.py [--only NAME] [--seeds 3] [--first 0] [--controls [KIND]] [--more] [--directory DIR]

Files are made here without atlasd, then given to `atlasd discover`. Printed: the answer, the angle between the span
that was found and the true one in degrees, seconds, and seconds as estimated at the start. Controls have the same
inputs, and nothing may be claimed: `oblique` adds an oblique derivative to the target (tables: permutes the targets),
`permuted` gives every sample the target of another, `pixel` makes the target a curve of the same pixel of the first
input.
Variants (`--more`) are other equations, filters, sizes and tables; two of them have no rotation.
Photographs are those that ship with scikit-image where it is installed, otherwise random fields with a 1/f spectrum.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import story_data as made
import story_variants as more

ROOT = Path(__file__).parent.parent
ROTATION = np.array([[[0.0, -1.0], [1.0, 0.0]]])


@dataclass(frozen=True)
class Story:
    """One file: how it is made, what is true, and how long an answer may take."""

    make: Callable[..., tuple[str, ...]]
    truth: np.ndarray
    components: int
    seconds: float
    units: tuple[float, ...] = ()
    """Sizes of the columns; the truth is told where all are 1."""


def _block(*places):
    """Rotations in pairs of coordinates of a vector with four."""
    a = np.zeros((1, 4, 4))
    for i, j in places:
        a[0, i, j], a[0, j, i] = -1.0, 1.0
    return a


def _so3():
    a = np.zeros((3, 3, 3))
    for k, (i, j) in enumerate(((0, 1), (0, 2), (1, 2))):
        a[k, i, j], a[k, j, i] = -1.0, 1.0
    return a


STORIES = {
    "blur": Story(made.blur, ROTATION, 2, 120),
    "edges": Story(made.edges, ROTATION, 2, 240),
    "velocities": Story(made.velocities, ROTATION, 2, 240),
    "vorticity": Story(made.vorticity, ROTATION, 1, 240),
    "allen_cahn": Story(made.allen_cahn, ROTATION, 2, 240),
    "gray_scott": Story(made.gray_scott, ROTATION, 2, 240),
    "curl": Story(made.curl, ROTATION, 1, 240),
    "divergence": Story(made.divergence, ROTATION, 2, 240),
    "smoothed": Story(made.smoothed, ROTATION, 2, 240),
    "kepler_next": Story(made.kepler_next, _block((0, 1), (2, 3)), 2, 60),
    "kepler_energy": Story(made.kepler_energy, np.concatenate([_block((0, 1)), _block((2, 3))]), 4, 60),
    "units": Story(made.units, _so3(), 2, 60, (1.0, 1e3, 1e-3)),
    "molecule": Story(made.molecule, _so3(), 2, 240),
    "label": Story(made.label, np.zeros((0, 2, 2)), 0, 5),
}


MORE = {
    "advection": Story(more.advection, np.zeros((0, 2, 2)), 2, 240),
    "burgers": Story(more.burgers, ROTATION, 2, 240),
    "wave": Story(more.wave, ROTATION, 2, 240),
    "oblique_diffusion": Story(more.oblique_diffusion, more.conjugated(), 2, 240),
    "conductivity": Story(more.conductivity, np.zeros((0, 2, 2)), 1, 240),
    "gradients": Story(more.gradients, ROTATION, 1, 240),
    "far_velocities": Story(more.far_velocities, ROTATION, 2, 240),
    "median": Story(more.median, ROTATION, 2, 240),
    "sobel": Story(more.sobel, ROTATION, 2, 240),
    "spread": Story(more.spread, ROTATION, 2, 240),
    "lengths": Story(more.lengths, _so3(), 2, 60, (1e-3, 1.0, 1e3)),
    "comet": Story(more.comet, _block((0, 1), (2, 3)), 2, 60, (1.5e8, 1.5e8, 29.8, 29.8)),
    "four_atoms": Story(more.four_atoms, _so3(), 2, 240),
}


def angle(found, story):
    """The largest principal angle between what was found and the truth, in degrees and in the units of the story."""
    truth, units = story.truth, np.array(story.units or np.ones(story.truth.shape[-1]))
    if len(found) != len(truth) or not len(truth):
        return float("nan")
    found = np.asarray(found) * units / units[:, None]
    frames = [np.linalg.qr(a.reshape(len(a), -1).T)[0] for a in (found, truth)]
    cosines = np.linalg.svd(frames[0].T @ frames[1], compute_uv=False)
    return float(np.degrees(np.arccos(min(cosines.min(), 1.0))))


def estimates(log):
    """Seconds in all, as said at the start for linear maps and others, and as corrected by a first look at the map."""
    start = re.search(r"estimated time: (.*)", log)
    said = re.findall(r"about ([\d.]+) (s|min)", start[1] if start else "")
    later = re.search(r"([\d.]+) s  about (\d+) s left, by", log)
    parts = [f"{float(value) * (60 if unit == 'min' else 1):.0f}" for value, unit in said]
    return "/".join(parts) + (f", corrected {float(later[1]) + float(later[2]):.0f}" if later else "")


def spoil(path, given, kind, rng):
    """Permutes the targets of a file of arrays, or makes them curves of the same pixel."""
    with np.load(path) as file:
        arrays = dict(file)
    named = dict(zip(given[::2], given[1::2], strict=True))
    source = arrays[named.get("--input", "x").split(",")[0]]
    order = rng.permutation(len(source))
    for name in named.get("--target", "y").split(","):
        arrays[name] = arrays[name][order] if kind == "permuted" else np.tanh((source - source.mean()) / source.std())
    np.savez(path, **arrays)


def tell(name, seed, control, directory, options):
    story = (STORIES | MORE)[name]
    path = directory / f"{name}{f'_{control}' if control else ''}_{seed}"
    rng = np.random.default_rng([seed, *name.encode()])
    file, *given = story.make(path, rng, control == "oblique")
    if control in ("permuted", "pixel") and file.endswith(".npz"):
        spoil(file, given, control, rng)
    arguments = [file, *given, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "atlasd", "discover", *arguments, "--seed", str(seed), "--json"]
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment)
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode:
        print(f"{path.name:28} status {done.returncode}, {seconds:.0f} s: {done.stderr.strip().splitlines()[-1][:150]}")
        return
    result = json.loads(done.stdout)
    verdict = result["verdict"]
    answer = result["group"]["name"] if verdict["symmetric"] else verdict["reason"].split(":")[0]
    degrees = angle(result["generators"], story)
    claimed = len(result["generators"]), result["group"]["components"]
    whole = claimed == (len(story.truth), story.components) and verdict["symmetric"] == (claimed != (0, 1))
    word = ("FALSE" if verdict["symmetric"] else "right") if control else "right" if whole else "-----"
    log = (directory / "runs" / f"{path.name}-seed{seed}" / "log.txt").read_text()
    stages = " ".join(f"{k} {v:.0f}" for k, v in result["seconds"].items() if v >= 1)
    print(
        f"{path.name:28} {word:6} {answer[:24]:24} {degrees:5.1f} deg {seconds:5.0f} s of {story.seconds:3.0f} "
        f"(said {estimates(log)}, "
        f"processor {processor:.0f})  skill {result['predictor']['skill'] or 0:.3f} "
        f"{result['predictor']['kind'][:34]}; {stages}\n    {verdict['reason'][:400]}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], choices=sorted(STORIES | MORE))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--controls", nargs="?", const="oblique", choices=("oblique", "permuted", "pixel"))
    parser.add_argument("--more", action="store_true", help="the variants instead")
    parser.add_argument("--directory", type=Path, help="where files and runs are kept; a temporary one by default")
    options, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.directory or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        for name in options.only or (MORE if options.more else STORIES):
            for seed in range(options.first, options.first + options.seeds):
                tell(name, seed, options.controls, directory.resolve(), rest)


if __name__ == "__main__":
    main()
