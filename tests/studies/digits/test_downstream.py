"""Pixel networks with and without a group, and the comparison of them on small data."""

import json

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.errors import DataError, InputError
from atlasd.nn import GroupConv2d, export, field_error
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.runtime.stages import keeping, resuming
from atlasd.studies.config import configure, parse_settings
from atlasd.studies.digits import downstream
from atlasd.studies.digits.pixel_networks import Plan, digit_accuracy, fit_pixels, pixel_network
from atlasd.studies.networks import weight_count

C4, SO2 = ad.known.cyclic(4), ad.known.special_orthogonal(2)
SMALL = Plan(channels=(1, 8, 8, 3), dilated=(2,), halve=True, epochs=2, batch=4, learning_rate=1e-2, cycle=True)


@pytest.fixture
def strokes(in_place_of_mnist):
    """Bars and rings in place of MNIST, so that nothing has to be fetched."""
    images = torch.zeros(20, 28, 28, dtype=torch.uint8)
    images[::2, 6:22, 12:16] = 255
    images[1::2, 8:20, 8:20] = 255
    images[1::2, 12:16, 12:16] = 0
    in_place_of_mnist(images, torch.arange(20) % 2)


@pytest.mark.parametrize(("group", "kind"), [(None, "trivial"), (C4, "trivial"), (C4, "regular"), (SO2, "circle(1)")])
def test_networks_keep_the_resolution_and_turn_if_they_have_a_group(group, kind):
    network = pixel_network(SMALL, group, kind, stream(0))
    x = torch.randn(2, 1, 24, 24, generator=stream(1))
    assert network(x).shape == (2, 3, 24, 24)
    error = field_error(network, x, torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    assert error > 1e-2 if group is None else error < 1e-5
    again = pixel_network(SMALL, group, kind, stream(0))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=False))
    plain = export(network.eval())
    torch.testing.assert_close(plain(x), network(x), atol=1e-6, rtol=1e-5)


def test_the_papers_network_has_less_than_a_third_of_the_weights_with_quarter_turns():
    plan = Plan(channels=downstream._PAPER, dilated=(5, 6, 7, 8))
    plain, turned = (pixel_network(plan, group, "trivial", stream(0)) for group in (None, C4))
    assert weight_count(turned) < weight_count(plain) / 3
    layers = [m for m in plain if isinstance(m, nn.Conv2d)]
    assert len(layers) == 12 and [m.dilation[0] for m in layers] == [1] * 4 + [2] * 4 + [1] * 4
    assert plain(torch.zeros(1, 1, 20, 20)).shape == (1, 11, 20, 20)
    assert sum(isinstance(m, GroupConv2d) for m in turned) == 12


def test_fitting_and_scoring():
    x = torch.zeros(8, 1, 12, 12)
    x[:, :, 3:9, 3:9] = torch.arange(8).reshape(8, 1, 1, 1) % 2 * 2.0 - 1.0
    y = torch.full((8, 12, 12), 2, dtype=torch.uint8)
    y[:, 3:9, 3:9] = (torch.arange(8) % 2).to(torch.uint8).reshape(8, 1, 1)
    plan = Plan(channels=(1, 8, 3), epochs=10, batch=4, learning_rate=2e-2, cycle=True)
    network = pixel_network(plan, C4, "trivial", stream(0))
    before = digit_accuracy(network, x, y, 2)
    fit_pixels(network, x, y, plan, seed=0, progress=Silent(), label="")
    assert digit_accuracy(network, x, y, 2) > max(0.95, before)
    assert digit_accuracy(lambda_module(2), x, y, 2) == 0.0  # background everywhere is not right anywhere


def lambda_module(constant):
    class Constant(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot(torch.full((len(x), *x.shape[2:]), constant), 3).movedim(-1, 1).float()

    return Constant()


def test_what_is_compared():
    config = configure(downstream.DownstreamConfig, {})
    assert [(m.name, m.kind) for m in downstream.compared(SO2, config)] == [
        ("plain", "trivial"), ("C4", "trivial"), ("C8", "regular"), ("group", "circle(2)"),
    ]  # fmt: skip
    noisy = ad.Group(torch.tensor([[[-0.03, -1.0], [1.0, 0.02]]]))
    assert [m.name for m in downstream.compared(noisy, config)] == ["plain", "C4", "C8", "group"]
    assert [m.name for m in downstream.compared(C4, config)] == ["plain", "C4"]
    scaling = downstream.compared(ad.Group(ad.known.scaling(2)), config)
    assert [(m.name, m.kind) for m in scaling] == [("plain", "trivial"), ("group", "trivial")]
    like_c8 = configure(downstream.DownstreamConfig, {"c4": "regular"})
    assert downstream.compared(SO2, like_c8)[1].kind == "regular"
    scalars = configure(downstream.DownstreamConfig, {"frequencies": 0})
    assert downstream.compared(SO2, scalars)[-1].kind == "trivial"


TINY = {"spheres": 4, "test": 3, "epochs": 1, "width": 8, "seeds": 2}


def test_the_comparison(strokes, tmp_path):
    config = configure(downstream.DownstreamConfig, TINY)
    with pytest.raises(KeyboardInterrupt), keeping(tmp_path / "run", ["run"], "1"):
        found, extras = downstream.run(config, 0, Silent())
        raise KeyboardInterrupt
    rows = {row["model"]: row for row in extras.metrics["rows"]}
    assert list(rows) == ["plain", "C4", "C8", "group"]
    assert found.group.name == "SO(2)" and "not discovered" in found.verdict.reason
    assert rows["plain"]["share"] == 1.0 and rows["plain"]["gain"] == 0.0
    for name in ("C4", "C8", "group"):
        # Splines in single precision leave some 1e-4 of the little that a network says after one epoch.
        assert rows[name]["share"] < 1 / 3 and rows[name]["turn_90"] < 5e-4
        assert 0 <= rows[name]["accuracy"] <= 1 and rows[name]["seconds"] > 0
    assert rows["plain"]["turn_90"] > 1e-3
    assert [len(v) for v in extras.metrics["accuracies"].values()] == [2] * 4
    assert extras.paper["C4"] == 0.9381
    json.dumps(extras.metrics)
    # What is kept is not done again.
    with resuming(), keeping(tmp_path / "run", ["run"], "1"):
        _, again = downstream.run(config, 0, Silent())
    assert again.metrics["rows"] == extras.metrics["rows"]


def test_a_discovery_brings_its_own_group(strokes, tmp_path, discovery):
    discovery.save(tmp_path / "found", "heat")
    values = {**TINY, "seeds": 1, "discovery": str(tmp_path / "found"), "models": "group"}
    found, extras = downstream.run(configure(downstream.DownstreamConfig, values), 0, Silent())
    assert found.group.name == discovery.group.name == "O(2)"
    assert [row["group"] for row in extras.metrics["rows"]] == ["O(2)"] and "share" not in extras.metrics["rows"][0]


def test_settings():
    paper = parse_settings(downstream.DownstreamConfig, ["preset=paper"])
    assert (paper.network, paper.epochs, paper.spheres, paper.learning_rate) == ("paper", 100, 10_000, 1e-3)
    with pytest.raises(InputError, match="`group` must be one of"):
        parse_settings(downstream.DownstreamConfig, ["group=SO(3)"])
    with pytest.raises(InputError, match="the group lacks it"):
        downstream.run(configure(downstream.DownstreamConfig, {"group": "C4", "models": "C8"}), 0, Silent())
    with pytest.raises(DataError, match="must be a run directory"):
        downstream.run(configure(downstream.DownstreamConfig, {"discovery": "/nowhere"}), 0, Silent())
