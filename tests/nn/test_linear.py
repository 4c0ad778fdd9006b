"""Linear layers on tensors: how many maps there are, that they commute, and what is refused."""

import io

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.errors import InputError
from atlasd.nn import EquivariantLinear, Gate, scalar, tensor, vector
from atlasd.nn.groups import elements_inside, elements_outside
from atlasd.nn.intertwiners import Intertwiners, rank_by_gap
from atlasd.runtime.random import stream


def two_circles():
    basis = torch.zeros(2, 4, 4)
    basis[0, 0, 1], basis[0, 1, 0], basis[1, 2, 3], basis[1, 3, 2] = -1, 1, -1, 1
    return ad.LieAlgebra(basis)


# Invariants of four slots by the first fundamental theorem; closed walks of length four on a square grid for circles.
DIMENSIONS = {
    "so(3)": (ad.known.so(3), 3),
    "so(1,3)": (ad.known.so(1, 3), 4),
    "sp(4)": (ad.known.sp(4), 3),
    "sl(2)": (ad.known.sl(2), 2),
    "so(2)+so(2)": (two_circles(), 36),
    "gl(2)": (ad.known.gl(2), 2),
}


def noisy(algebra, noise, seed, condition=1.0):
    """The algebra in other coordinates, with noise of that size in the entries of unit generators."""
    generator, n = stream(seed, "noisy"), algebra.size
    u, _, v = torch.linalg.svd(torch.randn(n, n, generator=generator, dtype=torch.float64))
    change = u @ torch.diag(torch.logspace(0, torch.tensor(condition).log10().item(), n, dtype=torch.float64)) @ v
    return noisy_basis(algebra.adjoint(change), noise, generator)


def noisy_basis(algebra, noise, generator):
    """Unit generators with noise of that size in their entries."""
    frame = algebra.frame()
    return ad.LieAlgebra(frame + noise * torch.randn(frame.shape, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("condition", [1.0, 5.0])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("name", DIMENSIONS)
def test_dimensions_of_matrices_to_matrices(name, noise, condition):
    algebra, dimension = DIMENSIONS[name]
    for seed in range(2):
        found = Intertwiners(ad.Group(noisy(algebra, noise, seed, condition))).between((2, 0), (2, 0))
        assert len(found.basis) == dimension and found.gap > 2


@pytest.mark.parametrize("seed", range(4))
def test_noise_in_a_centre_does_not_add_up_over_slots(seed):
    """Circles that noise has made spirals are circles again; what stretches on purpose goes on to do so."""
    found = Intertwiners(ad.Group(noisy(two_circles(), 0.03, seed, 5.0))).between((2, 0), (2, 0))
    assert len(found.basis) == 36
    stretched = ad.known.so(2).sum(ad.known.scaling(2))
    maps = Intertwiners(ad.Group(noisy(stretched, 0.03, seed, 5.0)))
    assert len(maps.between((2, 0), (2, 0)).basis) == 6 and not len(maps.between((2, 0), (0, 0)).basis)
    spiral = ad.LieAlgebra(torch.tensor([[[0.5, -1.0], [1.0, 0.5]]]))
    assert not len(Intertwiners(ad.Group(noisy(spiral, 0.01, seed))).between((2, 0), (0, 0)).basis)


@pytest.mark.parametrize("seed", range(3))
def test_what_nothing_changes_is_told_from_noise(seed):
    """Every matrix commutes with a scaling: the changes that noise makes are small beside what the slots do alone."""
    maps = Intertwiners(ad.Group(noisy(ad.known.scaling(3), 0.03, seed)))
    assert len(maps.between((1, 0), (1, 0)).basis) == 9 and not len(maps.between((1, 0), (0, 1)).basis)


@pytest.mark.parametrize(
    ("group", "dimension"),
    [
        (ad.known.octahedral(), 4),
        (ad.known.icosahedral(), 3),
        (ad.known.cyclic(4), 8),
        (ad.known.orthogonal(3), 3),
        (ad.known.lorentz(2), 3),
        (ad.Group(ad.known.trivial(2)), 16),
    ],
    ids=lambda value: value.name if isinstance(value, ad.Group) else "",
)
def test_finite_groups_and_components(group, dimension):
    """The mean of the fourth power of the character, and pairings without the volume where there are mirrors."""
    assert len(Intertwiners(group).between((2, 0), (2, 0)).basis) == dimension


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize(
    ("group", "vectors", "matrices"),
    [
        (ad.known.cyclic(4), 2, 8),
        (ad.known.dihedral(5), 1, 3),
        (ad.known.octahedral(), 1, 4),
        (ad.known.orthogonal(2), 1, 3),
        (ad.known.orthogonal(3), 1, 3),
        (ad.known.lorentz(4), 1, 3),
    ],
    ids=lambda value: value.name if isinstance(value, ad.Group) else "",
)
def test_components_in_other_coordinates(group, vectors, matrices, noise):
    """The numbers of maps do not depend on the basis: squares and fourth powers of characters."""
    for seed in range(2):
        generator, n = stream(seed, "components"), group.size
        u, _, v = torch.linalg.svd(torch.randn(n, n, generator=generator, dtype=torch.float64))
        change = u @ torch.diag(torch.logspace(0, 0.48, n, dtype=torch.float64)) @ v
        cosets = change @ group.cosets @ torch.linalg.inv(change)
        off = noise / 2 * torch.randn(cosets.shape, generator=generator, dtype=torch.float64)
        off[0] = 0
        algebra = noisy_basis(group.algebra.adjoint(change), noise, generator)
        maps = Intertwiners(ad.Group(algebra, cosets + off))
        assert len(maps.between((1, 0), (1, 0)).basis) == vectors
        assert len(maps.between((2, 0), (2, 0)).basis) == matrices


def test_cosets_that_are_no_group_are_refused():
    """An eighth of a full rotation without its powers: the mean is no projection."""
    part = ad.known.cyclic(8).cosets[:2]
    with pytest.raises(InputError, match="must leave a clear gap"):
        Intertwiners(ad.Group(torch.zeros(0, 2, 2), part)).between((2, 0), (2, 0))


GROUPS = {
    "SO(3)": ad.known.special_orthogonal(3),
    "O(1,3)": ad.known.lorentz(),
    "Sp(4)": ad.Group(ad.known.sp(4)),
    "SL(2)": ad.known.special_linear(2),
    "GL(2)": ad.known.general_linear_plus(2),
    "octahedral": ad.known.octahedral(),
    "sheared SO(3)": ad.Group(noisy(ad.known.so(3), 0.0, 4, 4.0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_layers_commute(name, dtype):
    group = GROUPS[name]
    rep_in, rep_out = 2 * vector() + tensor(1, 1) + 3 * scalar() + tensor(0, 1), scalar() + 2 * vector() + tensor(1, 1)
    layer = EquivariantLinear(rep_in, rep_out, group, generator=stream(0), dtype=dtype)
    with torch.no_grad():
        for bias in layer.biases.values():
            bias.fill_(0.7)
    x = torch.randn(5, layer.in_features, generator=stream(1), dtype=torch.float64).to(dtype)
    inside = elements_inside(group, 3, generator=stream(2), scale=0.5)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4

    def miss(g):
        left = layer(x @ rep_in.matrix(g).to(dtype).mT)
        right = layer(x) @ rep_out.matrix(g).to(dtype).mT
        return float(((left - right).norm() / right.norm()).detach())

    if name == "GL(2)":  # of determinant one only: `elements_inside` takes the scale off
        inside = torch.cat([inside, 2.5 * inside])
    assert max(miss(g) for g in inside) < tolerance
    if group.dimension < group.size**2 - 1:
        outside = elements_outside(group, 3, generator=stream(2), scale=0.5)
        assert min(miss(g) for g in outside) > 0.01


def test_export_gives_a_plain_layer():
    layer = EquivariantLinear(tensor(2) + vector(), tensor(2) + vector(), ad.known.lorentz(1), generator=stream(0))
    layer.biases["0"].data.fill_(0.3)
    x = torch.randn(4, 20, generator=stream(1))
    plain = layer.export()
    assert type(plain) is nn.Linear
    torch.testing.assert_close(plain(x), layer(x))
    copy = ad.nn.export(nn.Sequential(layer, nn.Identity()))
    assert type(copy[0]) is nn.Linear
    torch.testing.assert_close(copy(x), layer(x))


def test_saved_layers_come_back():
    layer = EquivariantLinear(vector(), vector(), ad.known.special_orthogonal(3))
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(again.weight, layer.weight)
    other = EquivariantLinear(vector(), vector(), ad.known.special_orthogonal(3))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)


def test_outputs_start_as_large_as_inputs():
    layer = EquivariantLinear(4 * tensor(2), 4 * tensor(2) + 8 * scalar(), ad.known.lorentz(1), generator=stream(0))
    x = torch.randn(500, layer.in_features, generator=stream(1))
    assert 0.5 < float(layer(x).detach().std()) < 2


def test_gates_commute_and_a_plain_nonlinearity_does_not():
    group, rep = ad.known.special_orthogonal(3), 2 * scalar() + 3 * vector()
    gate = Gate(rep, group)
    x = torch.randn(6, gate.rep_in.size(3), generator=stream(0), dtype=torch.float64)
    g = elements_inside(group, 1, generator=stream(1))[0]
    moved = x @ gate.rep_in.matrix(g).mT
    torch.testing.assert_close(gate(moved), gate(x) @ rep.matrix(g).mT)
    assert (torch.relu(moved) - torch.relu(x) @ gate.rep_in.matrix(g).mT).abs().max() > 0.1


def test_the_rank_follows_the_gap():
    assert rank_by_gap(torch.tensor([0.0, 1e-9, 1e-7, 0.5]), 0.3)[0] == 3  # gaps among rounding errors mean nothing
    assert rank_by_gap(torch.tensor([0.02, 0.05, 0.8]), 0.3)[0] == 2
    assert rank_by_gap(torch.tensor([0.4, 0.8]), 0.3)[0] == 0
    assert rank_by_gap(torch.zeros(3), 0.3) == (3, float("inf"))


def test_a_shear_is_left_in_its_coordinates():
    shear = ad.Group(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
    assert torch.equal(Intertwiners(shear)._frame[2], torch.eye(2, dtype=torch.float64))
    assert len(Intertwiners(shear).between((1, 0), (1, 0)).basis) == 2  # the identity and the shear itself


def test_what_cannot_be_done_is_said():
    with pytest.raises(InputError, match=r"no linear map takes T\(1\) to T\(0\) under SO\(3\).*products"):
        EquivariantLinear(vector(), scalar(), ad.known.special_orthogonal(3), bias=False)
    with pytest.raises(InputError, match="more than 2200; take tensors of lower order"):
        EquivariantLinear(tensor(3), tensor(3), ad.known.lorentz())
    assert rank_by_gap(torch.tensor([0.05, 0.08, 0.12, 0.18, 0.26, 0.38]), 0.3)[1] < 2
    blurred = Intertwiners(ad.known.special_orthogonal(3), noise=0.9)
    object.__setattr__(blurred, "_floor", 0.45)  # noise as large as the first change that is no noise
    with pytest.raises(InputError, match="must leave a clear gap"):
        blurred.between((2, 0), (2, 0))
    with pytest.raises(InputError, match="positive count"):
        0 * vector()
