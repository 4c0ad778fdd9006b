"""Five files of other origin, tried as a new user would: made here without atlasd, then given to `atlasd discover`.

python benchmarks/five_files.py [--only NAME] [--directory DIR]
"""

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy import ndimage

ROOT = Path(__file__).parent.parent


def smooth(rng, samples, shape, length):
    """Random fields without edges, of unit size."""
    noise = rng.standard_normal((samples, *shape))
    fields = np.stack([ndimage.gaussian_filter(n, length, mode="wrap") for n in noise])
    return fields / fields.std()


def wind(path, samples=240, shape=(72, 96)):
    """netCDF: winds on a box with north first, and the smoothed dynamic pressure; an island is missing."""
    import xarray

    rng = np.random.default_rng(1)
    u, v = 6 * smooth(rng, samples, shape, 3.0), 6 * smooth(rng, samples, shape, 3.0)
    pressure = np.stack([ndimage.gaussian_filter(0.6 * e, 1.0, mode="wrap") for e in u**2 + v**2])
    pressure += 0.01 * pressure.std() * rng.standard_normal(pressure.shape)
    rows, columns = shape[0] // 6, shape[1] // 8
    for field in (u, v, pressure):
        field[:, -rows:, -columns:] = np.nan
    dims = ("time", "latitude", "longitude")
    coordinates = {
        "time": np.arange(samples),
        "latitude": np.linspace(12, -12, shape[0]),
        "longitude": np.linspace(150, 182, shape[1]),
    }
    arrays = {"u10": u, "v10": v, "pdyn": pressure}
    xarray.Dataset({k: (dims, a.astype("float32")) for k, a in arrays.items()}, coordinates).to_netcdf(
        path, engine="h5netcdf"
    )


def simulation(path, samples=300, size=64):
    """npz: a reaction and diffusion equation, before and after."""
    rng = np.random.default_rng(2)
    before = smooth(rng, samples, (size, size), 3.0)
    after = before.copy()
    for _ in range(20):
        near = sum(np.roll(after, s, a) for s in (1, -1) for a in (1, 2))
        after = after + 0.1 * (near - 4 * after) + 0.02 * (after - after**3)
    np.savez_compressed(path, before=before.astype("float32"), after=after.astype("float32"))


def events(path):
    """CSV: real dimuon events."""
    with gzip.open(Path(os.environ.get("ATLASD_DATA", ".")) / "dimuons.csv.gz", "rb") as source, path.open("wb") as out:
        shutil.copyfileobj(source, out)


def pictures(path, samples=300, size=64):
    """HDF5: grey images as bytes, channels last, and the strength of their edges."""
    import h5py

    rng = np.random.default_rng(3)
    images = np.clip(128 + 45 * smooth(rng, samples, (size, size), 2.5), 0, 255).astype("uint8")
    edges = np.stack([ndimage.gaussian_gradient_magnitude(i.astype("float32"), 1.2, mode="wrap") for i in images])
    with h5py.File(path, "w") as file:
        file.create_dataset("train/image", data=images[..., None], compression="gzip")
        file.create_dataset("train/edges", data=edges.astype("float32"), compression="gzip")


def store(path, samples=240, shape=(80, 80), shuffled=False):
    """zarr: diffusion that is four times as fast along x; or, as a control, targets of other samples."""
    import xarray

    rng = np.random.default_rng(4)
    first = smooth(rng, samples, shape, 3.0)
    later = np.stack([ndimage.gaussian_filter(f, (1.0, 2.0), mode="wrap") for f in first])
    if shuffled:
        later = later[rng.permutation(samples)]
    dims = ("member", "y", "x")
    data = {"tracer": (dims, first.astype("float32")), "tracer_later": (dims, later.astype("float32"))}
    xarray.Dataset(data).to_zarr(path, consolidated=False)


def turning(content, ratio):
    """Whether the one generator turns along ellipses with that ratio of axes (row over column)."""
    if content["group"]["dimension"] != 1:
        return False
    (a, b), (c, d) = content["generators"][0]
    return b * c < 0 and abs(np.sqrt(-b / c) / ratio - 1) < 0.1 and max(abs(a), abs(d)) < 0.1 * max(abs(b), abs(c))


def unsure(content):
    return not content["verdict"]["symmetric"] and "annot tell" in content["verdict"]["reason"]


FILES = {
    "wind.nc": (wind, ["--target", "pdyn", "--nan", "mask"], lambda c: turning(c, 1.0), "O(2) on winds as vectors"),
    "simulation.npz": (simulation, [], lambda c: (turning(c, 1.0) and c["group"]["name"] == "O(2)") or unsure(c),
                       "O(2), or cannot tell"),
    "events.csv": (events, ["--tokens", "E1,px1,py1,pz1;E2,px2,py2,pz2", "--target", "M"],
                   lambda c: c["group"]["algebra"] == "so(1,3)" or unsure(c), "so(1,3), or cannot tell"),
    "pictures.h5": (pictures, [], lambda c: turning(c, 1.0) or unsure(c), "O(2), or cannot tell"),
    "store.zarr": (store, ["--input", "tracer", "--target", "tracer_later"], lambda c: turning(c, 0.5),
                   "turns along ellipses, twice as wide along x"),
    "control.zarr": (lambda path: store(path, shuffled=True), ["--input", "tracer", "--target", "tracer_later"],
                     unsure, "cannot tell: the targets belong to other samples"),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--directory", type=Path, default=ROOT / "runs" / "five_files")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, (make, arguments, right, truth) in FILES.items():
        if options.only and options.only != name:
            continue
        path = options.directory / name
        if not path.exists():
            make(path)
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["discover", str(path), *arguments, "--json", "--out", str(options.directory / f"run-{path.stem}")]
        done = subprocess.run([sys.executable, "-m", "atlasd", *command], capture_output=True, text=True)
        seconds = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"$ atlasd discover {name} {' '.join(arguments)}")
        print("".join(f"    {line}\n" for line in done.stderr.splitlines()), end="")
        content = json.loads(done.stdout) if done.returncode == 0 else None
        good = content is not None and right(content)
        failed += not good
        if content is not None:
            print(f"    {content['group']['name']}: {content['verdict']['reason']}")
        print(
            f"  {'right' if good else 'WRONG'}: expected {truth}; {seconds:.0f} s, {busy:.0f} s of processor\n",
            flush=True,
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
