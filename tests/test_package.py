"""The package as it is handed out."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_citation_names_the_paper():
    text = (ROOT / "CITATION.cff").read_text()
    assert "AtlasD: Automatic Local Symmetry Discovery" in text and "family-names: Bhat" in text


@pytest.mark.slow
def test_wheel_and_sdist_install_in_a_clean_environment(tmp_path):
    """Installed without dependencies, which the outer environment lends: what is tested is what is in the files."""
    pytest.importorskip("build")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)], check=True, timeout=600)
    assert len(list(tmp_path.glob("*.whl"))) == 1 and len(list(tmp_path.glob("*.tar.gz"))) == 1
    for number, file in enumerate(sorted(tmp_path.glob("atlasd-*"))):
        place = tmp_path / str(number)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        python = place / "bin" / "python"
        lent = next(p for p in sys.path if p.endswith("site-packages"))
        next(place.glob("lib/python*/site-packages")).joinpath("lent.pth").write_text(lent)
        subprocess.run([str(python), "-m", "pip", "install", "--no-deps", str(file)], check=True, timeout=600)
        code = "import atlasd; print(atlasd.__file__)"
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True, cwd=place, env={})
        assert str(place) in done.stdout


def test_the_former_name_of_the_networks_is_the_same_module():
    code = """
import atlasd.downstream, atlasd.nn
from atlasd.downstream import GroupConv2d, IcosahedralUNet, MetricGNN
from atlasd.downstream.metric_gnn import MetricGNN as same
assert atlasd.downstream.GroupConv2d is atlasd.nn.GroupConv2d and MetricGNN is same is atlasd.nn.MetricGNN
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
