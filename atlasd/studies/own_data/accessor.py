"""`ds.atlasd.discover("u", "v", target="vorticity")` for xarray datasets."""

from __future__ import annotations

import sys
from typing import Any


class DatasetAccessor:
    """What `ds.atlasd` offers."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def discover(self, *inputs: str, target: str | tuple[str, ...] = "", seed: int = 0, **options: Any) -> Any:
        """Finds the symmetry of the map from some variables to others.

        What is not given is guessed as on the command line: axes by the names of the dimensions, vectors by the names
        of the variables, charts by where the map is local.

        Arguments:
            inputs: Names of the variables of the input.
            target: Name of the target, or several.
            seed: Seed of every random stream.
            options: `charts`, `vectors`, `targets`, `ahead`, `nan`, `tolerance` and the others of `atlasd discover`;
                and `progress`, as in `atlasd.discover`.
        """
        from pathlib import Path

        from atlasd.data.file_xarray import variables_of
        from atlasd.data.files import DataFile
        from atlasd.runtime.progress import Silent, Terminal
        from atlasd.studies.config import configure
        from atlasd.studies.own_data.run import answer
        from atlasd.studies.own_data.settings import OwnConfig

        progress = options.pop("progress", True)
        names = {"input": ",".join(inputs), "target": target if isinstance(target, str) else ",".join(target)}
        config = configure(OwnConfig, {"file": "dataset", **names, **options})
        shown = (Terminal() if progress else Silent()) if isinstance(progress, bool) else progress
        file = DataFile(Path("dataset"), "xarray", variables_of(self._dataset))
        return answer(config, [file], seed, shown)[0]


def register() -> None:
    """Puts `atlasd` on datasets, once, where xarray has been imported."""
    xarray = sys.modules.get("xarray")
    dataset = getattr(xarray, "Dataset", None)  # absent while xarray itself is being imported
    if dataset is not None and not hasattr(dataset, "atlasd"):
        xarray.register_dataset_accessor("atlasd")(DatasetAccessor)  # type: ignore[union-attr]
