"""Stops runs at random moments with SIGKILL, SIGTERM and SIGINT, goes on with each, and compares with a whole run.

`python benchmarks/kills.py --kills 40` prints a line for every kill and the totals; the exit status is 1 if one of
them ended wrongly: another exit status, a process or a file left behind, or other tensors than those of the whole run.
A moment is a random number of stages that are kept, and a random part of the mean time from one to the next: so kills
fall evenly on the whole run however busy the machine is. A run begins where the program heeds signals: before that,
for some 20 ms on a quiet machine, Python itself is loading, and ends as it does for any program.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from atlasd.runtime.files import is_litter
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_fields, simulate_heat

CHARTS = "20,20;40,40;20,40;40,20;30,30;32,20"
CASES = {
    "heat": ["run", "heat", "--set", "atlas=three", "--set", "samples=60"],
    "vectors": ["discover", "v.npz"],
    "fields": ["discover", "f.npz", "--charts", CHARTS, "--in-radius", "9", "--out-radius", "5"],
    "zoo": ["zoo", "--quick", "--only", "so2,blur,threefold"],
}
ANSWERS = {"zoo": "zoo.json"}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def write_data(place):
    chance = np.random.default_rng(0)
    x = chance.standard_normal((1000, 3)).astype(np.float32)
    np.savez(place / "v.npz", x=x, y=(x**2).sum(1))
    fields = heat_fields(40, generator=stream(0, "kills"))
    flow = simulate_heat(fields)
    np.savez(place / "f.npz", x=fields.numpy()[..., ::2, ::2], y=flow.numpy()[..., ::2, ::2])


def start(place, words):
    """The program in a session of its own; interrupts are not ignored, as they are for a shell's background jobs."""
    return subprocess.Popen(
        [sys.executable, "-m", "atlasd", *words],
        cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def heeds(process):
    """Waits until the program has been loaded so far that it heeds signals itself."""
    while process.poll() is None:
        try:
            caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        except OSError:  # it has just ended
            return
        if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.001)


def members(session):
    """Processes of a session that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, mine = path.read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(mine) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def all_end(session, seconds=60.0):
    end = time.monotonic() + seconds
    while (left := members(session)) and time.monotonic() < end:
        time.sleep(0.1)
    return not left


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not k.endswith("seconds")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def answer(directory, case):
    """What must be the same: the plain result, the tensors, and the names of the files."""
    content = json.loads((directory / ANSWERS.get(case, "result.json")).read_text())
    tensors = directory / "tensors.safetensors"
    return without_times(content), tensors.read_bytes() if tensors.exists() else b"", files(directory)


def files(directory):
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


def litter(directory):
    return [p.name for p in directory.rglob("*") if is_litter(p.name)] if directory.exists() else []


def count_stages(directory):
    """How many stages are kept; the manifest is written whole or not at all."""
    try:
        return len(json.loads((directory / "stages" / "manifest.json").read_text())["stages"])
    except (OSError, ValueError):
        return 0


def watch(process, directory, until=None):
    """The largest number of stages seen, until there are so many or the process has ended."""
    most = 0
    while process.poll() is None and (until is None or most < until):
        most = max(most, count_stages(directory))
        time.sleep(0.01)
    return most


def stop_once(place, number, case, workers, sign, moment, expected):
    """One kill and what follows; gives what went wrong, and how it went on."""
    directory, wrong = place / f"{number}-{case}", []
    words = [*CASES[case], "--out", str(directory), *(["--workers", str(workers)] if workers else [])]
    process = start(place, words)
    heeds(process)
    if moment[0]:
        watch(process, directory, moment[0])
    time.sleep(moment[1])
    process.send_signal(sign)
    said = process.communicate(timeout=300)[1].strip().splitlines()
    status = process.returncode
    if not all_end(process.pid):
        wrong.append("a process is left")
    early = status == 0  # it was done before the signal came
    if sign == signal.SIGKILL:
        if status not in (0, -9):
            wrong.append(f"status {status}")
    elif not early:
        if status != 130:
            wrong.append(f"status {status}")
        if not said or not said[-1].startswith("atlasd: interrupted; "):
            wrong.append(f"said {said[-1:]}")
        if left := litter(directory):
            wrong.append(f"left {left}")
    kept = (directory / "stages" / "manifest.json").is_file()
    if not early:
        again = ["resume", str(directory)] if kept else words
        process = start(place, again)
        said = process.communicate(timeout=1200)[1].strip().splitlines()
        if process.returncode:
            return [*wrong, f"going on: status {process.returncode}, {said[-1:]}"], "failed"
    found = answer(directory, case)
    for name, mine, whole in zip(("result", "tensors", "files"), found, expected, strict=True):
        if mine != whole:
            wrong.append(f"other {name}")
    shutil.rmtree(directory)
    return wrong, "ended before" if early else "resumed" if kept else "started again"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("--kills", 40), ("--seed", 0)):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--only", default="", help="some of the cases")
    given = parser.parse_args()
    chance = random.Random(given.seed)
    cases = given.only.split(",") if given.only else list(CASES)
    bad, ways = 0, {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_data(place)
        whole, takes, stages = {}, {}, {}
        for case in cases:
            began = time.monotonic()
            process = start(place, [*CASES[case], "--out", str(place / case)])
            stages[case] = watch(process, place / case)
            said = process.communicate()[1]
            assert process.returncode == 0, said
            takes[case], whole[case] = time.monotonic() - began, answer(place / case, case)
            print(f"{case}: {takes[case]:.1f} s and {stages[case]} stages left alone", flush=True)
        plan = [(c, w, s) for w in (0, 2) for c in cases for s in SIGNALS]
        for number in range(given.kills):
            if number % len(plan) == 0:
                chance.shuffle(plan)
            case, workers, sign = plan[number % len(plan)]
            moment = chance.randint(0, stages[case]), chance.uniform(0.0, takes[case] / (stages[case] + 1))
            wrong, way = stop_once(place, number, case, workers, sign, moment, whole[case])
            bad += bool(wrong)
            ways[way] = ways.get(way, 0) + 1
            words = (
                f"{number + 1}: {case}, {workers} workers, {sign.name} {moment[1]:.1f} s after stage {moment[0]}: {way}"
            )
            print(words + (f"; WRONG: {'; '.join(wrong)}" if wrong else ""), flush=True)
    print(json.dumps({"kills": given.kills, "wrong": bad, **ways}))
    return int(bad > 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
