"""What atlasd finds on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from atlasd.cli.common import AsJson, tell

_NEEDED = ("torch", "numpy", "scipy", "safetensors", "rich", "typer", "matplotlib", "h5py")
_OPTIONAL = {
    "xarray": "netCDF and zarr files",
    "h5netcdf": "netCDF files",
    "zarr": "zarr stores",
    "pyarrow": "parquet tables",
    "distributed": "work on many machines",
    "pythia8mc": "jets of your own",
}


def doctor(as_json: AsJson = False) -> None:
    """Show versions, threads, devices and the data found, and what is missing."""
    found = _examine()
    if as_json:
        tell(json.dumps(found, indent=2), err=False)
        return
    for heading, entries in found.items():
        if isinstance(entries, dict):
            tell(heading, err=False)
            width = max((len(k) for k in entries), default=0)
            for key, value in entries.items():
                tell(f"  {key:<{width}}  {value}", err=False)
        else:
            tell(f"{heading}: {entries}", err=False)


def _examine() -> dict[str, Any]:
    import torch

    from atlasd import __version__

    memory = "unknown"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GB"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    problems = [f"{n} is missing; install atlasd again" for n in _NEEDED if importlib.util.find_spec(n) is None]
    return {
        "atlasd": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {
            **{name: _version(name) or "missing" for name in _NEEDED},
            **{n: _version(n) or f"missing, needed for {use}" for n, use in _OPTIONAL.items()},
        },
        "processor": {
            "cores": str(usable),
            "threads of torch": str(torch.get_num_threads()),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set; 1 is best for small matrices"),
            "memory": memory,
        },
        "devices": _devices(),
        "data": _data(),
        "problems": "; ".join(problems) or "none",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> dict[str, str]:
    import torch

    devices = {"cpu": "used"}
    for k in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        devices[f"cuda:{k}"] = torch.cuda.get_device_name(k)
    if torch.backends.mps.is_available():
        devices["mps"] = "there"
    return devices


def _data() -> dict[str, str]:
    """Where data are looked for, and what is there."""
    from atlasd.data.fetch import REGISTRY, data_directory

    where = os.environ.get("ATLASD_DATA")
    state = "not set" if not where else where if Path(where).is_dir() else f"{where}, which does not exist"
    found = {"ATLASD_DATA": state, "dimuons": "shipped with atlasd"}
    for name, each in REGISTRY.items():
        directory = data_directory(name)
        wanted = [*(file.name for file in each.files), *(folder for folder, _ in each.folders)]
        here = sum((directory / part).exists() for part in wanted)
        found[name] = f"{here} of {len(wanted)} parts in {directory}"
        if here < len(wanted):
            found[name] += f"; `atlasd data {name}` fetches them"
    return found
