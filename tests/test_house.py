"""The house: imports point down only, and no room is too large to read."""

import ast
import re
from pathlib import Path

import pytest

import atlasd

ROOT = Path(atlasd.__file__).parent
FLOORS = {
    "runtime": 0,
    "algebra": 1,
    "geometry": 1,
    "data": 2,
    "prediction": 3,
    "discovery": 4,
    "nn": 5,
    "report": 6,
    "studies": 7,
    "cli": 8,
}
# Discovery.report() draws and Discovery.network() builds; what they need is imported when they are called.
EXCEPTIONS = {("discovery/result.py", "report"), ("discovery/result.py", "nn")}
FRONT = {"__init__.py", "__main__.py", "downstream.py"}  # downstream: the former name of nn
FILES = sorted(ROOT.rglob("*.py"))


def imports(path):
    """Rooms of atlasd that a file imports, each with whether that is inside a function."""
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "atlasd" and len(parts) > 1:
                yield parts[1], id(node) in inside


def test_imports_point_down_but_for_the_exceptions():
    upwards = set()
    for path in FILES:
        relative = path.relative_to(ROOT)
        if relative.parent == Path():
            assert relative.name in FRONT or not any(room in FLOORS for room, _ in imports(path))
            continue
        room = relative.parts[0]
        assert room in FLOORS, f"{room} is on no floor; give it one in docs/design.md and here"
        for other, late in imports(path):
            assert other != "__main__", f"{relative} must not import the program"
            if other in FLOORS and other != room and FLOORS[other] >= FLOORS[room]:
                assert late, f"{relative} must not import atlasd.{other}"
                upwards.add((relative.as_posix(), other))
    assert upwards == EXCEPTIONS


def test_files_can_be_read_at_one_sitting():
    assert not [str(path) for path in FILES if len(path.read_text().splitlines()) > 400]


def test_both_sides_of_the_question_are_formed_in_one_place():
    """f(g x) and rho(g) f(x) meet in the residual and in its two kinds of data; averages and standard poses go back."""
    place = {"discovery/residual.py", "discovery/part_vectors.py", "discovery/part_fields.py", "nn/averaging.py"}
    found = set()
    for path in FILES:
        lines = "\n".join(line for line in path.read_text().splitlines() if ">>>" not in line)
        sides = [re.search(rf"\.({side})\(", lines) for side in ("on_input|input_at", "on_output|output_at")]
        if all(sides) and path.relative_to(ROOT).parts[0] != "studies":
            found.add(path.relative_to(ROOT).as_posix())
    assert found == place


def test_front_door_opens():
    for name in atlasd.__all__:
        assert getattr(atlasd, name) is not None
    assert set(atlasd.__all__) <= set(dir(atlasd))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        atlasd.nothing  # noqa: B018
