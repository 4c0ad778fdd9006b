"""What a zarr store may say: it holds plain files of its own, and codecs that only unpack."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from atlasd.data.file_limits import MOST_LEVELS, check_chunk, check_claim, check_count
from atlasd.errors import DataError
from atlasd.runtime.content import read_json

_METADATA = (".zarray", "zarr.json", ".zmetadata")
# Others are registered too, and one of them, `pickle`, runs what it unpacks.
_CODECS = (
    "bytes", "endian", "transpose", "sharding_indexed", "gzip", "zlib", "zstd", "blosc", "bz2", "lzma", "lz4",
    "shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype", "crc32", "crc32c", "adler32",
    "fletcher32", "jenkins_lookup3", "vlen-utf8", "vlen-bytes",
)  # fmt: skip
_PLACES = ("compressor", "compressors", "filters", "serializer", "codecs", "index_codecs")
_MISSING = 1000
"""How many chunks an array may have for each one that is stored, beyond a million."""


def check_store(path: Path) -> None:
    """Raises where reading a store would follow a link, run a codec that is not known, or never end."""
    arrays = 0
    stored: dict[Path, tuple[int, int]] = {}
    claims: dict[Path, Any] = {}
    for directory, entries in _directories(path):
        for entry in entries:
            if entry.name in _METADATA:
                content = read_json(Path(entry.path))
                for codec in _codecs(content):
                    if codec.removeprefix("numcodecs.") not in _CODECS:
                        raise DataError(f"`{path}` must use codecs that only unpack, got {codec!r}; write it again.")
                if entry.name != ".zmetadata" and isinstance(content, dict) and "shape" in content:
                    claims[directory], arrays = content, arrays + 1
                    check_count(path, arrays)
            elif entry.is_file(follow_symlinks=False):
                files, size = stored.get(directory, (0, 0))
                stored[directory] = files + 1, size + entry.stat(follow_symlinks=False).st_size
    for directory, content in claims.items():
        inside = [counts for place, counts in stored.items() if place == directory or directory in place.parents]
        _check_array(path, directory, content, sum(f for f, _ in inside), sum(s for _, s in inside))


def _directories(path: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    waiting = [(path, 0)]
    while waiting:
        directory, level = waiting.pop()
        if level > MOST_LEVELS:
            raise DataError(f"`{path}` must have at most {MOST_LEVELS} levels of directories, got more; flatten it.")
        with os.scandir(directory) as found:
            entries = list(found)
        for entry in entries:
            if entry.is_symlink():
                raise DataError(
                    f"`{path}` must hold its own data, got the symbolic link {entry.name!r}, which reads other files; "
                    "copy the data into it."
                )
            if entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), level + 1))
        yield directory, entries


def _codecs(content: Any, inside: bool = False) -> Iterator[str]:
    """Names of all codecs in the metadata, nested ones included."""
    if isinstance(content, list):
        for each in content:
            yield from _codecs(each, inside)
    elif isinstance(content, str) and inside:
        yield content
    elif isinstance(content, dict):
        if inside:
            yield str(content.get("id", content.get("name")))
        for key, value in content.items():
            if key != "attributes" and not key.endswith(".zattrs") and isinstance(value, dict | list):
                yield from _codecs(value, key in _PLACES)


def _check_array(path: Path, directory: Path, content: dict[str, Any], files: int, size: int) -> None:
    name = str(directory.relative_to(path))
    try:
        shape = [int(s) for s in content["shape"]]
        grid = content.get("chunk_grid")
        chunks = content["chunks"] if grid is None else grid["configuration"]["chunk_shape"]
        chunks = [max(1, int(c)) for c in chunks]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"array {name!r} of `{path}` is damaged: {error!r}; fetch it again.") from error
    width = _width(content)
    check_claim(path, name, math.prod(shape) * width, size)
    check_chunk(path, name, math.prod(chunks) * width)
    count = math.prod(-(-s // c) for s, c in zip(shape, chunks, strict=False))
    if count > _MISSING * max(files, _MISSING):
        raise DataError(
            f"array {name!r} of `{path}` must be stored, got {files} of its {count} chunks; is it truncated, or never "
            "filled?"
        )


def _width(content: dict[str, Any]) -> int:
    """Bytes of a number; 8 where the type is not numpy's."""
    try:
        return np.dtype(content.get("dtype", content.get("data_type"))).itemsize
    except TypeError:
        return 8
