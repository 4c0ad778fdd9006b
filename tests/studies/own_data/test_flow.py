"""Files of states: `atlasd discover --flow`."""

import numpy as np

from atlasd.runtime.progress import Silent
from atlasd.studies.own_data.run import run
from atlasd.studies.own_data.settings import OwnConfig


def write(path, names, columns):
    np.savetxt(path, np.stack(columns, axis=1), delimiter=",", header=",".join(names), comments="")
    return str(path)


def test_velocities_in_a_table(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(2, 300))
    r = x**2 + y**2
    file = write(tmp_path / "hopf.csv", ["x", "y", "dx", "dy"], [x, y, x - y - x * r, x + y - y * r])
    config = OwnConfig(file=file, input="x,y", target="dx,dy", flow=True)
    found, extras = run(config, 0, Silent())
    assert found.group.name.startswith("SO(2)") and extras.metrics["conserved"] == []
    assert config.command("own", 0)[-1] == "--flow"


def test_rows_one_after_the_other(tmp_path):
    # Quasi-periodic: two frequencies beat, so that all radii are seen.
    t = 0.3 * np.arange(600)
    size = 1.5 + np.cos(0.137 * t) + 1e-3 * np.random.default_rng(0).normal(size=600)
    q, p = size * np.cos(t), -size * np.sin(t)
    found, extras = run(OwnConfig(file=write(tmp_path / "states.csv", ["q", "p"], [q, p]), flow=True), 0, Silent())
    assert extras.metrics["samples"] == 599 and found.verdict.reason
