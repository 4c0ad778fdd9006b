"""Streaming a folder of synthetic maps at ClimateNet's size: every map, then samples of a discovery; peak memory.

python benchmarks/climate_memory.py [GIGABYTES] [FOLDER]   (1 by default; 20 for the claim of docs; FOLDER is kept)
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from writers import write_climate

from atlasd.runtime.memory import peak_megabytes
from atlasd.runtime.progress import Silent
from atlasd.studies.climate.files import open_climate
from atlasd.studies.climate.run import climate_samples

MAP = 64e6
"""Bytes of one file: 16 variables and labels on 768 x 1152 pixels."""


def size_of(folder):
    return sum(f.stat().st_size for f in folder.glob("*.nc"))


def read(path):
    """Every map with all variables, and then twice the four of a discovery: for their units, and as samples."""
    before, started = peak_megabytes(), time.perf_counter()
    folder = open_climate(path, split="train")
    for number in range(len(folder)):
        folder.fields(number), folder.labels(number)
    said = [f"{len(folder)} maps, all variables {time.perf_counter() - started:.0f} s"]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=path) as scratch:
        x, _ = climate_samples(folder, Path(scratch), Silent())
        for part in torch.arange(len(x)).split(4):
            x[part]
    said.append(f"samples {time.perf_counter() - started:.0f} s")
    gigabytes = size_of(folder.path) / 1e9
    print(f"{gigabytes:.2f} GB, {', '.join(said)}; peak {peak_megabytes():.0f} MB, {before:.0f} MB before")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["read"]:
        read(Path(sys.argv[2]))
    else:
        wanted = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(sys.argv[2] if len(sys.argv) > 2 else scratch)
            if not (folder / "train").is_dir():
                # Times have one and two experts by turns, and a file for each.
                write_climate(folder, train=max(2, round(wanted * 1e9 / MAP / 1.5)), test=0)
            # In a process of its own: the peak is that of reading, not of writing.
            subprocess.run([sys.executable, __file__, "read", str(folder)], check=True)
