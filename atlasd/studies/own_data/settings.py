"""Settings of `atlasd discover`; its options are derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from atlasd.studies.config import RunConfig, option, tolerance_option


@dataclass(frozen=True, kw_only=True)
class OwnConfig(RunConfig):
    """Settings of `atlasd discover`."""

    MANY: ClassVar[bool] = True

    file: str = option("", "the data: npz, npy, HDF5, netCDF, zarr, CSV or parquet", metavar="FILE")
    second: str = option("", "the targets, where they are in a file of their own", metavar="TARGETS")
    input: str = option("", "variables of the input; guessed if left out", metavar="NAME,...")
    target: str = option("", "variables of the target; guessed if left out", metavar="NAME,...")
    tokens: str = option("", "sets of vectors in a table: 'E1,px1,py1,pz1;E2,px2,py2,pz2'", metavar="COLUMNS")
    charts: str = option(
        "auto", "where charts lie: auto, grid, whole, sphere:12, or centres '64,19;86,19'", metavar="WHERE"
    )
    in_radius: int | None = option(None, "half the width of input patches, in pixels", least=1)
    out_radius: int | None = option(None, "half the width of output patches, in pixels", least=1)
    vectors: str = option("auto", "channels that form vectors: auto, none, find or pairs 'u,v'", metavar="PAIRS")
    targets: Literal["auto", "move", "fixed"] = option(
        "auto", "targets move with the inputs, as vectors do, or are fixed; auto tries both", metavar="HOW"
    )
    ahead: int = option(0, "take the target this many samples after the input", least=0)
    task: Literal["auto", "values", "classes"] = option(
        "auto", "the target holds values or classes; or auto", metavar="KIND"
    )
    nan: Literal["auto", "refuse", "mask"] = option(
        "auto", "refuse missing values, or mask them; auto masks rows of tables", metavar="WHAT"
    )
    duplicates: Literal["refuse", "drop"] = option("refuse", "refuse many copies, or drop them", metavar="WHAT")
    samples: int = option(0, "most samples used; 0 for 1000 fields or 30000 vectors", least=0)
    flow: bool = option(False, "the data are states; the target is their velocity, or else the next row")
    translations: bool = option(False, "look at translations, too; on charts: whether the law is the same nearby")
    tolerance: float = tolerance_option()
    budget: str = option("", "begin nothing new after this time, such as 90s or 2min", metavar="TIME")

    def command(self, name: str, seed: int) -> list[str]:
        """The same as options of `atlasd discover`."""
        changes = self.changes()
        words = ["discover", *(str(changes.pop(k)) for k in ("file", "second") if k in changes), "--seed", str(seed)]
        for key, value in changes.items():
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
        return words

    def title(self, name: str) -> str:
        """The name of the file without its endings."""
        return Path(self.file).name.split(".")[0] or name
