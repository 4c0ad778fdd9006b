"""The paper's theorem 4.3: gauge-equivariant layers that are atlas local on the plane are atlas equivariant.

Fields are scalars, charts are windows without distortion, kernels obey K(g^-1 v) = K(v). Then every chart may be moved
by an element of its own, and the outputs in each chart move along, with no regard to the others.
"""

import pytest
import torch
from torch import Tensor, nn

import atlasd as ad
from atlasd.geometry.actions import GridAction
from atlasd.geometry.resample import pixel_grid
from atlasd.nn import GroupConv2d
from atlasd.runtime.random import stream

GROUPS = {
    "C4": ad.known.cyclic(4),
    "D4": ad.known.dihedral(4),
    "SO(2)": ad.known.special_orthogonal(2),
    "O(2)": ad.known.orthogonal(2),
}
QUARTERS = {
    "identity": lambda z: z,
    "quarter": lambda z: z.rot90(1, (-2, -1)),
    "half": lambda z: z.rot90(2, (-2, -1)),
    "mirror": lambda z: z.flip(-1),
}
CENTRES = ((14, 14), (14, 44), (14, 74))
IN, OUT, REACH = 10, 8, 6
"""Radius of what is moved, of what is looked at, and of the receptive field of three layers of width 5."""


def network(group, seed: int) -> nn.Sequential:
    """Three convolutions with pointwise non-linearities, as the proof has it."""
    generator = stream(seed, "gauge")
    layers = [GroupConv2d(a, b, 5, group=group, padding=2, generator=generator) for a, b in ((1, 6), (6, 6), (6, 2))]
    return nn.Sequential(layers[0], nn.SiLU(), layers[1], nn.Tanh(), layers[2])


def field(seed: int) -> Tensor:
    """Something on a disc in every chart, with room between them: the receptive field sees one chart at a time."""
    x = torch.zeros(1, 1, 29, 89)
    inside = (pixel_grid((2 * IN + 1, 2 * IN + 1)).norm(dim=-1) <= IN - 0.5).reshape(2 * IN + 1, -1)
    for k, centre in enumerate(CENTRES):
        x[window(centre, IN)] = torch.randn(1, 1, *inside.shape, generator=stream(seed, "chart", k)) * inside
    return x


def window(centre: tuple[int, int], radius: int):
    return (..., *(slice(c - radius, c + radius + 1) for c in centre))


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("seed", range(3))
def test_every_chart_may_be_moved_by_itself(name, seed):
    net, x = network(GROUPS[name], seed), field(seed)
    allowed = [m for m in QUARTERS if m != "mirror" or name in ("D4", "O(2)")]
    picks = torch.randint(len(allowed), (3,), generator=stream(seed, "gauge", "moves")).tolist()
    moved = x.clone()
    for centre, pick in zip(CENTRES, picks, strict=True):
        moved[window(centre, IN)] = QUARTERS[allowed[pick]](x[window(centre, IN)])
    with torch.no_grad():
        before, after = net(x), net(moved)
    for centre, pick in zip(CENTRES, picks, strict=True):
        expected = QUARTERS[allowed[pick]](before[window(centre, OUT)])
        torch.testing.assert_close(after[window(centre, OUT)], expected, atol=1e-5, rtol=1e-5)


def test_a_group_without_mirrors_allows_kernels_that_feel_them():
    net, x = network(GROUPS["C4"], 0), field(0)
    moved = x.clone()
    moved[window(CENTRES[0], IN)] = x[window(CENTRES[0], IN)].flip(-1)
    with torch.no_grad():
        difference = net(moved)[window(CENTRES[0], OUT)] - net(x)[window(CENTRES[0], OUT)].flip(-1)
    assert float(difference.abs().max()) > 1e-3


def test_the_layers_are_atlas_local():
    """What happens in another chart does not matter."""
    net, x = network(GROUPS["SO(2)"], 0), field(0)
    other = x.clone()
    other[window(CENTRES[2], IN)] = torch.randn(other[window(CENTRES[2], IN)].shape, generator=stream(9, "other"))
    with torch.no_grad():
        for centre in CENTRES[:2]:
            assert torch.equal(net(x)[window(centre, OUT)], net(other)[window(centre, OUT)])


def test_a_conv_without_the_constraint_is_local_and_not_equivariant():
    torch.manual_seed(0)
    plain, x = nn.Conv2d(1, 1, 5, padding=2), field(0)
    turned = QUARTERS["quarter"](x[window(CENTRES[0], IN)])
    with torch.no_grad():
        difference = plain(turned) - QUARTERS["quarter"](plain(x[window(CENTRES[0], IN)]))
    assert float(difference.abs().max()) > 0.1


@pytest.mark.parametrize("degrees", [20.0, 45.0, 70.0])
def test_off_the_grid_as_good_as_pixels_allow(degrees):
    net = network(GROUPS["SO(2)"], 1)
    smooth = torch.nn.functional.avg_pool2d(torch.randn(4, 1, 43, 43, generator=stream(0, "smooth")), 7, 1)
    smooth = torch.nn.functional.avg_pool2d(smooth, 5, 1)  # waves that a grid can hold
    g = ad.known.so(2).exp(torch.deg2rad(torch.tensor([degrees])).double())
    action = GridAction()
    with torch.no_grad():
        left, right = net(action.on_input(g, smooth)), action.on_output(g, net(smooth))
    disc = (pixel_grid((33, 33)).norm(dim=-1) < 16 - REACH - 1).reshape(33, 33)
    scale = (right - right.mean())[..., disc].square().mean()
    assert float((left - right)[..., disc].square().mean() / scale) < 0.01


@pytest.mark.slow
def test_discovery_finds_the_group_that_was_built_in():
    """The other direction: what the theorem promises is what a discovery sees."""
    net = network(GROUPS["SO(2)"], 2).requires_grad_(False)
    x = torch.nn.functional.avg_pool2d(torch.randn(60, 1, 45, 45, generator=stream(3, "smooth")), 5, 1)
    atlas = ad.Atlas.at([(20, 20)], in_radius=15, out_radius=8)
    found = ad.discover(x, function=lambda z: net(z)[:, :1], atlas=atlas, cosets=False, progress=False)
    assert found.algebra.dimension == 1 and found.algebra.distance(ad.known.so(2)) < 0.1
