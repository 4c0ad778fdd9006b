"""The experiment with digits on a sphere asks what its settings say; its pictures show local and global turns."""

import math

import pytest
import torch

from atlasd.algebra.known import so, trivial
from atlasd.data.fetch import data_directory
from atlasd.discovery.discover import TOLERANCE
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.spectral import SpectralSearch
from atlasd.errors import AtlasdError
from atlasd.report.figures import draw_spheres
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.config import configure
from atlasd.studies.digits import data
from atlasd.studies.digits import run as sphere_mnist


@pytest.fixture
def asked(in_place_of_mnist, recorded):
    """What `discover` was called with, on digits that are not MNIST."""
    in_place_of_mnist(torch.randint(256, (5, 28, 28), generator=stream(0)), torch.arange(5))
    return recorded(sphere_mnist)


def test_what_is_asked(asked):
    config = configure(sphere_mnist.CONFIG, {"samples": 60, "liegan_steps": 2})
    _, extras = sphere_mnist.run(config, 0, Silent())
    assert asked["x"].shape == (60, 1, 60, 120) and asked["y"].shape == (60, 60, 120)
    assert len(asked["atlas"]) == 3 and isinstance(asked["search"], SpectralSearch)
    assert asked["search"].generators == 1 and not asked["search"].derivatives
    assert asked["predictor"].background_weight == 0.1
    assert asked["cosets"] is False and asked["tolerance"] == TOLERANCE
    assert extras.metrics["angle_deg"] == pytest.approx(0, abs=1e-6) and extras.paper["angle_deg"] == 1.46
    assert extras.fields["spheres"].shape == (3, 60, 120)


def test_settings(asked):
    config = configure(
        sphere_mnist.CONFIG, {"samples": 60, "generators": "auto", "rotate": 0.0, "cosets": True, "liegan_steps": 0}
    )
    sphere_mnist.run(config, 0, Silent())
    assert asked["search"].generators is None and asked["cosets"] is True
    config = configure(sphere_mnist.CONFIG, {"preset": "paper", "samples": 60, "liegan_steps": 0})
    sphere_mnist.run(config, 0, Silent())
    assert isinstance(asked["search"], GradientSearch) and asked["search"].loss == "cross_entropy"
    assert asked["search"].growth == 0.35 and asked["predictor"].widths == (32, 64, 64, 64)
    assert not asked["predictor"].skips


def test_charts_see_the_grid_itself():
    x = torch.rand(2, 1, 60, 120, generator=stream(0))
    for k, (row, column) in enumerate(data.CENTRES):
        window = x[..., row - 14 : row + 15, column - 14 : column + 15]
        torch.testing.assert_close(sphere_mnist.digit_atlas().input_patches(x)[:, k], window)


def test_pictures():
    x = torch.zeros(1, 1, 60, 120)
    x[..., 26:34, 18:22] = 1.0
    atlas = sphere_mnist.digit_atlas()
    quarter = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    first, local, whole = sphere_mnist.pictures(x, atlas, so(2), seed=0, rotation=quarter)
    assert torch.equal(first, x[0, 0]) and float((local - first).abs().max()) > 0.3
    assert float(local.sum()) == pytest.approx(float(first.sum()), rel=0.1)
    torch.testing.assert_close(whole, first.roll(30, -1), atol=1e-4, rtol=0)
    still = sphere_mnist.pictures(x, atlas, trivial(2), seed=0)
    assert torch.equal(still[1], first) and not torch.equal(still[2], first)
    figure = draw_spheres(still)
    assert len(figure.axes) == 9 and math.isclose(figure.get_size_inches()[0], 5.7)


def _has_digits():
    try:
        return data_directory("mnist").is_dir()
    except AtlasdError:
        return False


needs_digits = pytest.mark.skipif(not _has_digits(), reason="needs ATLASD_DATA/mnist")


@needs_digits
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_digits_may_be_turned(seed):
    _, extras = sphere_mnist.run(configure(sphere_mnist.CONFIG, {}), seed, Silent())
    assert extras.metrics["group"] == "SO(2)" and extras.metrics["angle_deg"] < 1.5
    assert 50 < extras.metrics["extent_deg"] < 70


@needs_digits
@pytest.mark.slow
def test_upright_digits_may_not():
    found, _ = sphere_mnist.run(configure(sphere_mnist.CONFIG, {"rotate": 0.0}), 0, Silent())
    assert found.group.dimension == 0
