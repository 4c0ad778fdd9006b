"""Dask over TLS: an encrypted address with certificates, or one clear line."""

import shutil
import subprocess

import pytest

from atlasd.cli import main
from atlasd.cli.common import chosen_workers
from atlasd.runtime.executor import current_workers


@pytest.mark.parametrize(
    "words, message",
    [
        (["--tls", "a,b,c"], "--tls must come with --dask tls://HOST:8786, got 'no address'"),
        (["--dask", "tcp://h:1", "--tls", "a,b,c"], "--tls must come with --dask tls://HOST:8786, got 'tcp://h:1'"),
        (["--dask", "tls://h:1", "--tls", "a,b"], "--tls must name three files, CA,CERT,KEY, got 'a,b'"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, capsys, words, message):
    assert main(["run", "d4", "--out", str(tmp_path / "run"), "--quiet", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.fixture
def certificate(tmp_path):
    """One certificate that is its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=atlasd", "-keyout"]
    subprocess.run([*words, str(key), "-out", str(cert)], check=True, capture_output=True)
    return str(cert), str(key)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_work_on_an_encrypted_cluster(certificate):
    distributed = pytest.importorskip("distributed")
    cert, key = certificate
    names = ("tls_ca_file", "tls_scheduler_cert", "tls_scheduler_key", "tls_worker_cert", "tls_worker_key")
    files = dict(zip(names, (cert, cert, key, cert, key), strict=True))
    both = {"tls_client_cert": cert, "tls_client_key": key}
    security = distributed.Security(require_encryption=True, **files, **both)
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "processes": False}
    with distributed.LocalCluster(security=security, protocol="tls://", **options) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with chosen_workers(None, address, f"{cert},{cert},{key}"):
            assert current_workers().map(pow, [(2, 3), (3, 2)], "ab") == [8, 9]
