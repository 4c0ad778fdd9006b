"""From a group to the network that suits the data."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction
from atlasd.nn import EquivariantMLP, EquivariantSetMLP, FieldNetwork, field_error, network, scalar, vector
from atlasd.nn.groups import elements_inside
from atlasd.runtime.random import stream

SO2 = ad.known.special_orthogonal(2)


def test_vectors_in_order():
    x = torch.randn(40, 3, 4, generator=stream(0))
    net = network(ad.known.lorentz(1), x, x[:, 0, 0], width=8, generator=stream(1))
    assert isinstance(net, EquivariantMLP) and net(x).shape == (40, 1)
    classes = network(ad.known.lorentz(1), x, torch.arange(40) % 3, width=8)
    assert classes(x).shape == (40, 3)
    forces = network(ad.known.special_orthogonal(3), x[..., :3], x[:, 0, :3], outputs=vector(), width=8)
    g = elements_inside(ad.known.special_orthogonal(3), 1, generator=stream(2))[0].float()
    torch.testing.assert_close(forces(x[..., :3] @ g.mT), forces(x[..., :3]) @ g.mT, atol=1e-4, rtol=1e-3)


def test_sets_of_vectors():
    x = torch.randn(20, 9, 4, generator=stream(0))
    net = network(ad.known.lorentz(1), x, x[:, 0, 0], width=8)
    assert isinstance(net, EquivariantSetMLP)
    torch.testing.assert_close(net(x.flip(1)), net(x), atol=1e-4, rtol=1e-3)
    assert isinstance(network(ad.known.lorentz(1), x[:, :3], x[:, 0, 0], width=8, sets=True), EquivariantSetMLP)


def test_fields(waves):
    x = waves(4, (33, 33), length=20.0)
    net = network(SO2, x, 3 * x + 1, width=10, generator=stream(0))
    assert isinstance(net, FieldNetwork) and net(x).shape == x.shape
    turn = SO2.algebra.exp(torch.tensor([[0.7]], dtype=torch.float64))
    plain = FieldNetwork(1, 1, group=ad.known.cyclic(1), width=10, generator=stream(0))
    assert float(field_error(net, x, turn, radius=8)) < 0.2 * float(field_error(plain, x, turn, radius=8))
    pooled = network(ad.known.cyclic(4), x, torch.arange(4) % 2, width=8)
    assert pooled(x).shape == (4, 2)
    torch.testing.assert_close(pooled(x.rot90(dims=(2, 3))), pooled(x), atol=1e-4, rtol=1e-4)
    pixels = network(ad.known.cyclic(4), x, (x[:, 0] > 0).long(), width=8)
    assert pixels(x).shape == (4, 2, 33, 33)


def test_a_linear_law_is_known_before_training(waves):
    x = waves(8, (33, 33), length=20.0)
    y = 100 * torch.nn.functional.avg_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1) + 7
    net = network(ad.known.dihedral(4), x, y, width=8, kernel_size=3, generator=stream(0))
    with torch.no_grad():
        for parameter in net.layers[-1].parameters():
            parameter.zero_()
        assert float((net(x) - y).std()) > 0.01 * float(y.std())  # it made up for what the other layers gave
        net.standardise(x, y)
        assert float((net(x) - y).std()) < 1e-4 * float(y.std())


@pytest.mark.parametrize("group", [ad.known.dihedral(4), SO2])
def test_fields_of_vectors(group, waves):
    x = torch.cat([waves(4, (33, 33), length=20.0), waves(4, (33, 33), length=20.0).flip(0)], 1)
    turns = ad.known.cyclic(4).cosets[1:]
    rise = sum(torch.gradient(x[:, k], dim=k + 1)[0] for k in range(2))
    y = torch.stack(torch.gradient(rise, dim=(1, 2)), 1)
    flow = network(group, x, y, outputs=vector(), rho_in=vector().matrix, width=10, generator=stream(0))
    moving = GridAction(fill="zeros", rho_in=vector().matrix, rho_out=vector().matrix)
    assert float(field_error(flow, x, turns, action=moving, radius=8).max()) < 1e-5
    assert float(field_error(flow, x, turns, radius=8).max()) > 1e-2  # as scalars they are not
    # Gradients come from scalars.
    slopes = network(group, x[:, :1], x, outputs=vector(), width=10, generator=stream(0))
    moving = GridAction(fill="zeros", rho_out=vector().matrix)
    assert float(field_error(slopes, x[:, :1], turns, action=moving, radius=8).max()) < 1e-5


def test_targets_transform_as_the_discovery_found(waves):
    x = torch.randn(300, 2, generator=stream(0))
    found = ad.discover(x, x * x.square().sum(-1, keepdim=True), progress=False, cosets=False)
    assert "vector" in found.config["targets"]
    net = found.network(x, x * x.square().sum(-1, keepdim=True), width=8)
    assert str(net.outputs) == "T(1)"


def test_a_discovery_knows_its_network():
    x = torch.randn(200, 2, generator=stream(0))
    found = ad.discover(x, function=lambda p: p.square().sum(-1), progress=False, cosets=False)
    net = found.network(x, x.square().sum(-1), width=8)
    assert isinstance(net, EquivariantMLP)
    turn = found.group.algebra.exp(torch.tensor([1.0]))[None].float()[0]
    torch.testing.assert_close(net(x @ turn.mT), net(x), atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize(
    ("group", "x", "y", "message"),
    [
        (ad.Group(ad.known.trivial(2)), torch.zeros(5, 2), torch.zeros(5), "none was found; take a plain network"),
        (SO2, torch.zeros(5, 3), torch.zeros(5), "must be fields"),
        (SO2, torch.zeros(5, 2), torch.zeros(5, 2), r"could be vectors.*outputs=vector\(\)"),
        (ad.known.general_linear_plus(2), torch.zeros(5, 1, 9, 9), torch.zeros(5, 1, 9, 9), "no network with bounded"),
        (ad.known.general_linear_plus(2), torch.zeros(5, 2), torch.zeros(5), "could only be constant"),
        (SO2, torch.zeros(5, 2), torch.zeros(4), "one target for each of 5 samples, got 4"),
        (SO2, torch.full((5, 2), torch.nan), torch.zeros(5), "must be finite, got NaN"),
    ],
)
def test_what_cannot_be_built_is_said(group, x, y, message):
    with pytest.raises(InputError, match=message):
        network(group, x, y)
    assert scalar().size(2) == 1
