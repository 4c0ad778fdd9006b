"""Data that are too large to ship: where they are kept, and how they are fetched."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atlasd.errors import DataError, InputError
from atlasd.runtime.files import open_plain, read_bytes, sync_directory, write_atomically
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.text import did_you_mean

_BLOCK = 1 << 20
_TIMEOUT = 30.0
_MOST = 1 << 30
"""Bytes of a file whose size is not known; ClimateNet's have 70 MB."""
_MOST_PAGE = 16 << 20
"""Bytes of a page of links."""
_MOST_FILES = 10_000


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch.

    Arguments:
        name: What it is called here; may name a folder too.
        checksum: `sha256:...`; `md5:...` where its source publishes nothing better, `None` where it publishes none. In
            both cases the SHA-256 of what came first is kept beside the file, and holds from then on.
        size: Its size in bytes, where known; no more is fetched.
    """

    name: str
    url: str
    checksum: str | None = None
    size: int | None = None

    @property
    def most(self) -> int:
        """Size in bytes beyond which a download is refused."""
        return _MOST if self.size is None else self.size


@dataclass(frozen=True)
class RemoteData:
    """Data that can be fetched by name.

    Arguments:
        name: What to write after `atlasd data`.
        folders: Folders of more files, by name and address of a page that links to them.
    """

    name: str
    description: str
    licence: str
    source: str
    files: tuple[RemoteFile, ...]
    folders: tuple[tuple[str, str], ...] = ()


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_TOP = "https://zenodo.org/records/2603256"
_CLIMATE = "https://portal.nersc.gov/project/ClimateNet/climatenet_new"

_DIGITS = {
    "train-images-idx3": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
    "train-labels-idx1": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
    "t10k-images-idx3": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
    "t10k-labels-idx1": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
}
_JETS = {
    "train.h5": ("45663819f47c13724f67eb0fd80bfa5c", 1_038_496_555),
    "val.h5": ("dca4b7248027618f041f9baa86d360fc", 347_378_076),
    "test.h5": ("13163479dee30a5fe546e4536cc3d04d", 347_849_376),
}
REGISTRY: dict[str, RemoteData] = {
    "mnist": RemoteData(
        "mnist", "70,000 handwritten digits (12 MB)", "CC BY-SA 3.0", "https://yann.lecun.com/exdb/mnist",
        tuple(
            RemoteFile(f"{name}-ubyte.gz", f"{_MNIST}/{name}-ubyte.gz", f"sha256:{checksum}", size)
            for name, (checksum, size) in _DIGITS.items()
        ),
    ),
    "top-tagging": RemoteData(
        "top-tagging", "2 million jets, top quarks against light quarks and gluons (1.7 GB)", "CC BY 4.0", _TOP,
        tuple(
            RemoteFile(name, f"{_TOP}/files/{name}", f"md5:{checksum}", size)
            for name, (checksum, size) in _JETS.items()
        ),
    ),
    "climate": RemoteData(
        "climate", "ClimateNet: 459 labelled maps of cyclones and atmospheric rivers (about 30 GB)", "as its page says",
        "https://portal.nersc.gov/project/ClimateNet", (),
        tuple((split, f"{_CLIMATE}/{split}/") for split in ("train", "test")),
    ),
}  # fmt: skip


def data_directory(name: str) -> Path:
    """Where the data of that name are kept: below ATLASD_DATA, or in the user's cache."""
    if root := os.environ.get("ATLASD_DATA"):
        return Path(root) / name
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "atlasd" / name


def find_data(name: str) -> RemoteData:
    """The data of that name.

    Example:
        >>> find_data("top-taging")
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: unknown data 'top-taging', did you mean 'top-tagging'? `atlasd data` shows all.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    raise InputError(f"unknown data {name!r}{did_you_mean(name, REGISTRY)} `atlasd data` shows all.")


def fetch(
    data: RemoteData, directory: Path | None = None, *, progress: Progress | None = None, only: tuple[str, ...] = ()
) -> list[Path]:
    """Fetches what is not there yet, going on where an earlier try stopped, and checks every file.

    Arguments:
        directory: Where to; `data_directory` by default.
        only: Names of the files that are wanted; all by default.

    Returns:
        The paths of the files.
    """
    files = (*data.files, *(file for folder in data.folders for file in _linked(*folder)))
    names = [file.name for file in files]
    for name in only:
        if name not in names:
            raise InputError(f"`only` must name files of {data.name} ({', '.join(names)}), got {name!r}.")
    folder = data_directory(data.name) if directory is None else directory
    shown = progress or Silent()
    return [_fetch_file(file, folder / file.name, shown) for file in files if not only or file.name in only]


def _linked(folder: str, url: str) -> list[RemoteFile]:
    """The netCDF files that a page links to."""
    request = urllib.request.Request(url, headers={"User-Agent": "atlasd"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            _check_address(url, response)
            page = response.read(_MOST_PAGE).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"`{url}` could not be read ({_cause(error)}); run again where there is a network, or copy the files "
            "by hand."
        ) from error
    names = sorted(set(re.findall(r"href=[\"']?([\w.-]+\.nc)\b", page)))
    if not 1 <= len(names) <= _MOST_FILES:
        raise DataError(f"`{url}` must link to netCDF files, got {len(names) or 'none'}; copy the files by hand.")
    return [RemoteFile(f"{folder}/{name}", f"{url}{name}") for name in names]


def _fetch_file(file: RemoteFile, path: Path, progress: Progress) -> Path:
    if path.is_file():
        progress.say(f"{path} is there; checking it")
        # Somebody's file: it is never removed, even when it is wrong.
        _verify(path, path, file, "move it away and fetch it again")
        return path
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(file, part, progress)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise DataError(
            f"`{file.url}` could not be fetched ({_cause(error)}); run again where there is a network, "
            f"or put the file at {path}."
        ) from error
    except OSError as error:
        raise DataError(f"`{path}` could not be written: {error}; set ATLASD_DATA to another directory.") from error
    try:
        _verify(part, path, file, "run again")
    except DataError:
        part.unlink()  # going on from wrong bytes would never end well
        raise
    if not (file.checksum or "").startswith("sha256:"):
        digest = _digest(part, "sha256")
        write_atomically(_record(path), lambda record: record.write_text(f"{digest}  {path.name}\n"))
    os.replace(part, path)
    sync_directory(path.parent)
    return path


def _cause(error: Exception) -> str:
    return " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__


def _download(file: RemoteFile, part: Path, progress: Progress) -> None:
    """Appends to `part` what it lacks; a server that cannot go on from the middle starts over."""
    have = part.stat().st_size if part.exists() else 0
    if file.size is not None and have == file.size:
        return
    request = urllib.request.Request(file.url, headers={"User-Agent": "atlasd"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:  # more is there than the server has
            raise
        part.unlink()
        return _download(file, part, progress)
    with response:
        _check_address(file.url, response)
        goes_on = response.status == 206
        start = have if goes_on else 0
        length = _length(response)
        total = file.size if length is None else start + length
        if (total or 0) > file.most:
            raise ConnectionError(f"the server offers {total} bytes where at most {file.most} are expected")
        # A link that somebody put there is not written through.
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if goes_on else os.O_TRUNC)
        with os.fdopen(open_plain(part, flags, follow=False), "ab" if goes_on else "wb") as out:
            blocks = None if total is None else -(-(total - start) // _BLOCK)
            for block in progress.track(_blocks(response), f"fetch {file.name}", blocks):
                out.write(block)
                if out.tell() > file.most:
                    raise ConnectionError(f"the server sends more than the {file.most} bytes that are expected")
        got = part.stat().st_size
    if total is not None and got < total:
        raise ConnectionError(f"the connection ended after {got} of {total} bytes")


def _check_address(url: str, response: http.client.HTTPResponse) -> None:
    """Raises where an encrypted connection was led on to a plain one."""
    reached = str(getattr(response, "url", url))
    if url.startswith("https:") and not reached.startswith("https:"):
        raise ConnectionError(f"the server leads on to {reached.split('?')[0]}, which is not encrypted")


def _length(response: http.client.HTTPResponse) -> int | None:
    """Bytes that are to come, where the server says so in a form that can be understood."""
    text = (response.headers.get("Content-Length") or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while block := response.read(_BLOCK):
        yield block


def _record(path: Path) -> Path:
    """Where the SHA-256 of the first fetch stands."""
    return path.with_name(f"{path.name}.sha256")


def _digest(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _verify(path: Path, shown: Path, file: RemoteFile, remedy: str) -> None:
    sums = [] if file.checksum is None else [file.checksum]
    record = _record(shown)
    if record.is_file():
        words = read_bytes(record, 1 << 12).decode(errors="replace").split()
        sums.append(f"sha256:{words[0] if words else 'none'}")
    for kind, _, expected in (each.partition(":") for each in sums):
        if (found := _digest(path, kind)) != expected:
            raise DataError(f"`{shown}` must have the {kind} sum {expected}, got {found}; {remedy}.")
