"""The examples run, with small settings, and find what they say."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="needs the examples, which an installed package lacks")


def run(name, **settings):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(**settings)


def test_function():
    distance, diamond, nothing = run("01_function", samples=400)
    assert distance.group.name == "O(3)" and diamond.group.name == "D4"
    assert nothing.group.name == "trivial" and not nothing.verdict.symmetric


def test_heat(tmp_path):
    found = run("02_heat", samples=60, out=tmp_path / "run")
    assert found.group.name == "O(2)"
    assert (tmp_path / "run" / "report.html").stat().st_size < 3e6


def test_momenta():
    # A function is known everywhere: it is asked about negative energies, too, and the mass does not feel them.
    assert run("03_momenta", samples=600).group.name == "O(1,3)"


def test_own_predictor():
    found = run("04_own_predictor")
    assert found.group.name == "O(1,1)" and found.predictor.kind == "quadratic"


def test_own_action():
    told, untold = run("05_own_action", samples=40)
    assert told.group.name == "O(2)" and untold.dimension == 0


def test_examples_are_short():
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert len(scripts) >= 5 and all(len(script.read_text().splitlines()) < 80 for script in scripts)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks(notebook, tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install -e '.[docs]'")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install -e '.[docs]'")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install -e '.[docs]'")
    book = nbformat.read(notebook, as_version=4)
    context = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=context).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert outputs and not [output for output in outputs if output["output_type"] == "error"]


def test_two_points():
    free, held = run("06_two_points", samples=300)
    assert free.group.name == "E(2)" and held.group.dimension < 3


def test_flow():
    whirl, spring, friction = run("07_flow", samples=400)
    assert whirl.group.name == "SO(2)" and spring.conserved[0].formula == "x^2 + y^2" and not friction.conserved


def test_curves():
    cubic, circle = run("08_curves", samples=500)
    assert cubic.formulas == ["0.667 y d/dx + x^2 d/dy"] and circle.group.name == "SO(2)"


@pytest.mark.slow
def test_nearby():
    found = run("09_nearby", samples=160)
    assert found.group.name == "E(2)" and [chart.outlier for chart in found.charts] == [True, True, False, False]


@pytest.mark.slow
def test_channels():
    found = run("10_channels", samples=24)
    assert found.inputs.name == "vector" and found.outputs.name == "pseudo-scalar"
