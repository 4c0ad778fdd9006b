"""Fetching: goes on where it stopped, checks what came, and loses nothing."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from atlasd.cli import main
from atlasd.data import fetch as fetching
from atlasd.data.fetch import REGISTRY, RemoteData, RemoteFile, data_directory, fetch, find_data
from atlasd.errors import DataError, InputError

CONTENT = bytes(range(256)) * 12_000  # three blocks


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT, from the middle if asked; `/cut` ends early and `/plain` ignores ranges."""

    asked: ClassVar[list] = []

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.asked.append((self.path, wanted))
        if self.path == "/folder/":
            page = b"<a href='../'>up</a> <a href=\"a_1.nc\">a_1.nc</a> <a href=\"b.nc\">b.nc</a> <a href='c.txt'>c</a>"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)
            return
        if self.path == "/none":
            self.send_error(404)
            return
        start = int(wanted.split("=")[1].rstrip("-")) if wanted and self.path != "/plain" else 0
        if start > len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        lengths = {"/words": "many", "/negative": "-5", "/endless": None, "/larger": str(10**15)}
        if (length := lengths.get(self.path, str(len(CONTENT) - start))) is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        body = CONTENT[start:]
        self.wfile.write(body[: len(body) // 2] if self.path == "/cut" else body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    Handler.asked = []
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()
    thread.join()


def data(url, checksum=None, size=None):
    checksum = f"md5:{hashlib.md5(CONTENT).hexdigest()}" if checksum is None else checksum
    return RemoteData("thing", "a thing", "CC0", url, (RemoteFile("a.bin", url, checksum, size),))


def test_fetches_and_leaves_what_is_there(server, tmp_path):
    (path,) = fetch(data(f"{server}/whole"), tmp_path)
    assert path == tmp_path / "a.bin" and path.read_bytes() == CONTENT
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "a.bin.sha256"]
    fetch(data(f"{server}/whole"), tmp_path)
    assert len(Handler.asked) == 1


def test_goes_on_from_where_it_stopped(server, tmp_path):
    with pytest.raises(DataError, match=r"could not be fetched \(.*\); run again where there is a network"):
        fetch(data(f"{server}/cut"), tmp_path)
    kept = (tmp_path / "a.bin.part").stat().st_size
    assert 0 < kept < len(CONTENT) and not (tmp_path / "a.bin").exists()
    (path,) = fetch(data(f"{server}/whole"), tmp_path)
    assert Handler.asked[-1][1] == f"bytes={kept}-" and path.read_bytes() == CONTENT


def test_starts_over_where_it_must(server, tmp_path):
    part = tmp_path / "a.bin.part"
    part.write_bytes(b"x" * 10)
    fetch(data(f"{server}/plain"), tmp_path)
    (tmp_path / "a.bin").unlink()
    part.write_bytes(b"x" * (len(CONTENT) + 5))
    fetch(data(f"{server}/whole"), tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_whole_part_is_not_fetched_again(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    fetch(data(f"{server}/whole", size=len(CONTENT)), tmp_path)
    assert not Handler.asked


def test_wrong_checksum(server, tmp_path):
    with pytest.raises(DataError, match=r"a.bin` must have the sha256 sum 00ff, got [0-9a-f]{64}; run again\."):
        fetch(data(f"{server}/whole", checksum="sha256:00ff"), tmp_path)
    assert not list(tmp_path.iterdir())
    mine = tmp_path / "a.bin"
    mine.write_bytes(b"mine")
    with pytest.raises(DataError, match=r"must have the md5 sum .*; move it away and fetch it again"):
        fetch(data(f"{server}/whole"), tmp_path)
    assert mine.read_bytes() == b"mine"


def test_no_network_is_one_clear_line(server, tmp_path, monkeypatch, capsys):
    with pytest.raises(DataError, match=r"could not be fetched \(Not Found\)"):
        fetch(data(f"{server}/none"), tmp_path)
    monkeypatch.setitem(REGISTRY, "thing", data("http://127.0.0.1:9/a"))
    assert main(["data", "thing", "--out", str(tmp_path), "--quiet"]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "could not be fetched" in shown and "or put the file at" in shown


@pytest.mark.parametrize("path", ["/words", "/negative", "/endless"])
def test_a_length_that_says_nothing(server, tmp_path, path):
    (got,) = fetch(data(f"{server}{path}"), tmp_path)
    assert got.read_bytes() == CONTENT


@pytest.mark.parametrize("path", ["/whole", "/endless", "/larger"])
def test_no_more_is_fetched_than_is_expected(server, tmp_path, path, monkeypatch):
    with pytest.raises(DataError, match=r"could not be fetched \(.* bytes .*expected\)"):
        fetch(data(f"{server}{path}", size=2_000_000), tmp_path)
    monkeypatch.setattr(fetching, "_MOST", 1_000_000)
    with pytest.raises(DataError, match=r"could not be fetched \(.* bytes .*expected\)"):
        fetch(data(f"{server}{path}"), tmp_path)
    assert not (tmp_path / "a.bin").exists()


def test_links_are_not_written_through(server, tmp_path):
    precious = tmp_path / "thesis.tex"
    precious.write_text("years of work")
    (tmp_path / "a.bin.part").symlink_to(precious)
    with pytest.raises(DataError):
        fetch(data(f"{server}/plain"), tmp_path)
    assert precious.read_text() == "years of work"


def test_what_came_first_holds_where_nothing_better_is_published(server, tmp_path):
    (path,) = fetch(data(f"{server}/whole"), tmp_path)
    record = tmp_path / "a.bin.sha256"
    assert record.read_text() == f"{hashlib.sha256(CONTENT).hexdigest()}  a.bin\n"
    path.write_bytes(CONTENT[::-1])
    thing = RemoteData("thing", "a thing", "CC0", server, (RemoteFile("a.bin", f"{server}/whole"),))
    with pytest.raises(DataError, match="must have the sha256 sum"):
        fetch(thing, tmp_path)


def test_every_source_is_checked():
    for each in REGISTRY.values():
        assert each.source.startswith("https://") and all(url.startswith("https://") for _, url in each.folders)
        for file in each.files:
            assert file.url.startswith("https://") and file.size and file.checksum
            assert file.checksum.startswith("sha256:") or each.name == "top-tagging"  # which publishes md5 only


def test_command(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path))
    monkeypatch.setitem(REGISTRY, "thing", data(f"{server}/whole"))
    assert main(["data", "thing", "-q"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "thing" / "a.bin")
    assert main(["data"]) == 0
    shown = capsys.readouterr().out
    assert "top-tagging" in shown and "CC BY 4.0" in shown and "; here" in shown
    assert main(["data", "thing", "--only", "b.bin"]) == 2
    assert "must name files of thing (a.bin), got 'b.bin'" in capsys.readouterr().err


def test_where_data_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path))
    assert data_directory("thing") == tmp_path / "thing"
    monkeypatch.delenv("ATLASD_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_directory("thing") == tmp_path / "cache" / "atlasd" / "thing"
    with pytest.raises(InputError, match=r"unknown data 'climte'"):
        find_data("climte")


def test_reference_files_have_checksums():
    files = find_data("top-tagging").files
    assert [f.name for f in files] == ["train.h5", "val.h5", "test.h5"]
    assert all(f.checksum and f.size and f.url.startswith("https://zenodo.org/records/2603256/") for f in files)
    assert fetching._TIMEOUT < 60


def test_folders_are_read_from_the_page_that_links_to_them(server, tmp_path):
    thing = RemoteData("thing", "a thing", "CC0", server, (), (("train", f"{server}/folder/"),))
    paths = fetch(thing, tmp_path)
    assert [str(p.relative_to(tmp_path)) for p in paths] == ["train/a_1.nc", "train/b.nc"]
    assert paths[0].read_bytes() == CONTENT
    with pytest.raises(DataError, match=r"could not be read .*; run again where there is a network"):
        fetch(RemoteData("thing", "a thing", "CC0", server, (), (("train", f"{server}/none"),)), tmp_path)
    with pytest.raises(DataError, match="must link to netCDF files, got none"):
        fetch(RemoteData("thing", "a thing", "CC0", server, (), (("train", f"{server}/whole"),)), tmp_path)
    assert [folder for folder, _ in REGISTRY["climate"].folders] == ["train", "test"]
