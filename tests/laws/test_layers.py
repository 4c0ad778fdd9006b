"""The law of a layer, over every group and every kind of field: turning what goes in turns what comes out."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.geometry.actions import GridAction
from atlasd.nn import GroupActivation, GroupBatchNorm2d, GroupConv2d, GroupPool, circle, export, field_error
from atlasd.nn.representations import resolve
from atlasd.runtime.random import stream

SO2, O2 = ad.known.special_orthogonal(2), ad.known.orthogonal(2)
QUARTER = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
MIRROR = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A group and a kind of field; `mirrors` tells whether reflections belong to the group."""

    group: Any
    kind: Any
    mirrors: bool = False

    @property
    def name(self):
        return f"{self.group.name}-{self.kind}"

    @property
    def type(self):
        return resolve(self.kind, self.group)

    @property
    def width(self):
        return 2 * self.type.size

    def network(self, *, padding_mode="zeros", dtype=torch.float32):
        """Three layers, from scalars to scalars, with norms that have seen some data."""
        options = {"group": self.group, "generator": stream(0, "network"), "padding_mode": padding_mode}
        field = {"group": self.group, "field_type": self.kind}
        network = nn.Sequential(
            GroupConv2d(1, self.width, 5, padding=2, out_type=self.kind, **options),
            GroupActivation(self.width, activation=nn.LeakyReLU(), **field),
            GroupBatchNorm2d(self.width, **field),
            GroupConv2d(
                self.width, self.width, 3, padding=2, dilation=2, in_type=self.kind, out_type=self.kind, **options
            ),
            GroupActivation(self.width, **field),
            GroupPool(self.width, how="max", **field),
            GroupConv2d(2, 3, 3, padding=1, **options),
        ).to(dtype)
        with torch.no_grad():
            for seed in range(3):
                network(torch.randn(4, 1, 17, 17, generator=stream(seed, "seen")).to(dtype))
        return network.eval()


CASES = [
    Case(ad.known.cyclic(2), "trivial"),
    Case(ad.known.cyclic(4), "trivial"),
    Case(ad.known.cyclic(4), "regular"),
    Case(ad.known.dihedral(4), "trivial", mirrors=True),
    Case(ad.known.dihedral(4), "regular", mirrors=True),
    Case(ad.known.cyclic(8), "trivial"),
    Case(ad.known.cyclic(8), "regular"),
    Case(SO2, "trivial"),
    Case(SO2, circle(2)),
    Case(O2, "trivial", mirrors=True),
    Case(O2, "circle(2)", mirrors=True),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def element(case):
    """A turn of the group that maps pixels to pixels."""
    return QUARTER @ QUARTER if case.group.components == 2 and not case.group.dimension else QUARTER


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_turns_and_mirrors_are_exact(case, dtype):
    network = case.network(dtype=dtype)
    x = torch.randn(2, 1, 17, 17, generator=stream(1, "x")).to(dtype)
    assert network(x).dtype == dtype
    assert field_error(network, x, element(case)) < 1e-5
    mirrored = field_error(network, x, MIRROR)
    # Control: what is not in the group is seen, except that isotropic kernels are symmetric by themselves.
    if case.mirrors:
        assert mirrored < 1e-5
    elif case.kind != "trivial" or case.group.components in (2, 4):
        assert mirrored > 1e-2


@every
def test_every_layer_by_itself_turns_its_own_fields(case):
    width, g = case.width, element(case)
    rho = case.type.on_channels(width)
    action = GridAction(rho_in=rho, rho_out=rho, fill="zeros")
    options = {"group": case.group, "in_type": case.kind, "out_type": case.kind, "generator": stream(0, "layer")}
    layers = [
        GroupConv2d(width, width, 3, padding=1, **options),
        GroupConv2d(width, width, 3, stride=2, **options),
        GroupActivation(width, group=case.group, field_type=case.kind),
        GroupBatchNorm2d(width, group=case.group, field_type=case.kind),
    ]
    x = torch.randn(2, width, 9, 9, generator=stream(2, "fields"))
    for layer in layers:
        assert field_error(layer, x, g, action=action) < 1e-5
    pool = GroupPool(width, group=case.group, field_type=case.kind)
    for how in ("max", "mean"):
        pool = GroupPool(width, group=case.group, field_type=case.kind, how=how)
        assert pool(x).shape == (2, 2, 9, 9)
        assert field_error(pool, x, g, action=GridAction(rho_in=rho, fill="zeros")) < 1e-5
    if case.type.size > 1:
        # Control: the same layers on channels that are turned without their representation.
        assert field_error(layers[0], x, g, action=GridAction(fill="zeros")) > 0.05


@every
def test_norms_stay_equivariant_while_they_learn(case):
    rho = case.type.on_channels(case.width)
    x = torch.randn(3, case.width, 9, 9, generator=stream(3, "fields"))
    norm = GroupBatchNorm2d(case.width, group=case.group, field_type=case.kind).train()
    turned = GridAction(rho_in=rho).on_input(element(case), x)
    torch.testing.assert_close(norm(turned), GridAction(rho_in=rho).on_input(element(case), norm(x)), atol=1e-5, rtol=0)


@every
def test_export_gives_the_same_outputs(case):
    network = case.network()
    plain = export(network)
    assert {type(m).__module__.split(".")[0] for m in plain.modules()} == {"torch"}
    x = torch.randn(2, 1, 17, 17, generator=stream(4, "x"))
    with torch.no_grad():
        difference = (plain(x) - network(x)).abs().max()
    assert difference <= 1e-6 * max(1.0, float(network(x).detach().abs().max()))
    # The copy does not hang on to the original.
    for p in network.parameters():
        p.data.zero_()
    assert plain(x).abs().max() > 0


def test_plain_convolutions_do_not_turn(waves):
    torch.manual_seed(0)
    plain = nn.Conv2d(1, 4, 5, padding=2)
    x = waves(2, (17, 17))
    assert field_error(plain, x, QUARTER) > 0.1
    with pytest.raises(AssertionError, match="not equivariant: error"):
        ad.assert_equivariant(plain, ad.known.cyclic(4), x)
    ad.assert_equivariant(GroupConv2d(1, 4, 5, padding=2, group=ad.known.cyclic(4)), ad.known.cyclic(4), x)


def test_turns_off_the_grid_are_better_for_rotations_than_for_quarter_turns(waves):
    x = waves(4, (41, 41))
    off = SO2.algebra.exp(torch.tensor([[torch.pi / 4], [torch.pi / 6], [1.0]]))
    errors = {}
    for case in (Case(ad.known.cyclic(4), "trivial"), Case(SO2, "trivial"), Case(ad.known.cyclic(1), "trivial")):
        errors[case.group.name] = float(field_error(case.network(), x, off, radius=11).mean())
    assert errors["SO(2)"] < 0.5 * errors["C4"] < 0.5 * errors["trivial"]
    assert errors["SO(2)"] < 0.05
    ad.assert_equivariant(Case(SO2, "trivial").network(), SO2, x, tolerance=0.1, radius=11)
    with pytest.raises(AssertionError):
        ad.assert_equivariant(Case(ad.known.cyclic(1), "trivial").network(), SO2, x, tolerance=0.1, radius=11)
