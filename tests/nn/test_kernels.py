"""Kernels: how many there are, that they obey the constraint, and that none is missing."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid
from atlasd.nn.kernels import kernel_basis
from atlasd.nn.representations import circle, regular, resolve, trivial

SO2, O2 = ad.known.special_orthogonal(2), ad.known.orthogonal(2)
SCALINGS, GL = ad.Group(ad.known.scaling(2)), ad.known.general_linear_plus(2)


@pytest.mark.parametrize(
    ("group", "size", "dimension"),
    [
        (ad.known.cyclic(1), 5, 25),
        (ad.known.cyclic(2), 5, 13),
        (ad.known.cyclic(4), 5, 7),
        (ad.known.cyclic(4), 3, 3),
        (ad.known.cyclic(4), 4, 4),
        (ad.known.dihedral(4), 5, 6),
        (ad.known.dihedral(4), 7, 10),
        (ad.known.cyclic(8), 5, 3),
        (SO2, 5, 3),
        (SO2, 7, 4),
        (O2, 5, 3),
        (SCALINGS, 5, 5),
        (GL, 5, 1),
        (ad.known.special_linear(2), 5, 1),
    ],
    ids=str,
)
def test_free_weights(group, size, dimension):
    found = kernel_basis(group, size)
    assert found.kernels.shape == (dimension, 1, 1, size, size)
    flat = found.kernels.flatten(1)
    torch.testing.assert_close(flat @ flat.mT, torch.eye(dimension, dtype=torch.float64))


def test_averaging_over_quarter_turns_gives_the_same_span():
    kernels = torch.eye(25, dtype=torch.float64).reshape(25, 5, 5)
    averaged = sum(kernels.rot90(k, dims=(1, 2)) for k in range(4)).flatten(1) / 4
    found = kernel_basis(ad.known.cyclic(4), 5).kernels.flatten(1)
    assert torch.linalg.matrix_rank(averaged) == 7
    torch.testing.assert_close(averaged @ found.mT @ found, averaged)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_everything_linear_leaves_the_constant_kernel_and_says_so(size):
    found = kernel_basis(GL, size)
    assert found.constant and found.note.startswith("GL+(2) leaves only the spatially constant kernel")
    torch.testing.assert_close(found.kernels.abs(), torch.full((1, 1, 1, size, size), 1 / size, dtype=torch.float64))
    other = kernel_basis(SO2, 5)
    assert not other.constant and other.note == ""


def test_scalings_leave_functions_of_the_direction():
    found = kernel_basis(SCALINGS, 5)
    kernels = found.kernels[:, 0, 0]
    torch.testing.assert_close(kernels[:, 0, 0], kernels[:, 1, 1])  # (-2, -2) lies behind (-1, -1)
    torch.testing.assert_close(kernels[:, 2, 4], kernels[:, 2, 3])
    assert not torch.allclose(kernels[:, 2, 4], kernels[:, 4, 2])  # but directions differ


def test_a_shear_moves_along_rows_and_not_along_columns():
    # g = [[1, t], [0, 1]] takes (row, column) to (row + t column, column): kernels know the column only.
    shear = ad.Group(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
    kernels = kernel_basis(shear, 5).kernels[:, 0, 0]
    assert kernels.std(1).mean() < 0.5 * kernels.std(2).mean()


@pytest.mark.parametrize("group", [ad.known.cyclic(8), SO2, O2, ad.known.dihedral(8)], ids=str)
def test_quarter_turns_are_exact_where_other_turns_are_sampled(group):
    found = kernel_basis(group, 5)
    assert not found.exact
    torch.testing.assert_close(found.kernels.rot90(dims=(3, 4)), found.kernels)


def constraint_error(kernels, group, into, out, g):
    """Largest miss of K(g p) = rho_out(g) K(p) rho_in(g)^-1 for g that maps pixels to pixels."""
    p = pixel_grid(tuple(kernels.shape[-2:]), dtype=torch.float64)
    where = torch.cdist(p @ g.mT, p).argmin(1)
    left = kernels.flatten(-2)[..., where]
    right = torch.einsum("ij,djkp,kl->dilp", out.matrix(g), kernels.flatten(-2), torch.linalg.inv(into.matrix(g)))
    return float((left - right).abs().max())


@pytest.mark.parametrize(
    ("group", "into", "out"),
    [
        (ad.known.cyclic(4), "regular", "regular"),
        (ad.known.cyclic(4), "trivial", "regular"),
        (ad.known.dihedral(4), "regular", "trivial"),
        (ad.known.dihedral(4), "regular", "regular"),
        (ad.known.cyclic(8), "regular", "regular"),
        (SO2, "circle", "circle"),
        (SO2, "trivial", "circle"),
        (O2, "circle", "circle"),
        (ad.known.cyclic(4), "circle", "regular"),
    ],
    ids=str,
)
def test_constraint_holds_between_all_fields(group, into, out):
    kinds = {"trivial": trivial(), "circle": circle(2)}
    if not group.dimension:
        kinds["regular"] = regular(group)
    into, out = kinds[into], kinds[out]
    found = kernel_basis(group, 5, in_type=into, out_type=out)
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    assert constraint_error(found.kernels, group, into, out, quarter) < 1e-9
    if group.components == 2 or (group.components == 8 and group.cosets[-1].det() < 0):
        mirror = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
        assert constraint_error(found.kernels, group, into, out, mirror) < 1e-9
    # Control: kernels drawn at random do not obey.
    noise = torch.randn(found.kernels.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert constraint_error(noise, group, into, out, quarter) > 0.1


def test_regular_kernels_are_all_there():
    c4 = ad.known.cyclic(4)
    # Frobenius: kernels from regular to regular fields are free on one column of 4 x 25 numbers.
    assert kernel_basis(c4, 5, in_type=regular(c4), out_type=regular(c4)).dimension == 100
    assert kernel_basis(c4, 5, out_type=regular(c4)).dimension == 25
    assert kernel_basis(SO2, 1, in_type=circle(2), out_type=circle(2)).dimension == 5
    assert kernel_basis(O2, 1, in_type=circle(2), out_type=circle(2)).dimension == 3


def test_a_discovered_basis_may_be_noisy_or_elliptic():
    paper = ad.Group(torch.tensor([[[-0.03, -1.0], [1.0, 0.02]]]))
    clean, noisy = kernel_basis(SO2, 5), kernel_basis(paper, 5)
    assert noisy.dimension == clean.dimension
    a, b = clean.kernels.flatten(1), noisy.kernels.flatten(1)
    assert torch.linalg.svdvals(a @ b.mT).min() > 0.99
    ellipse = ad.Group(torch.tensor([[[0.0, -2.0], [0.5, 0.0]]]))
    kernels = kernel_basis(ellipse, 5).kernels[:, 0, 0]
    assert len(kernels) == 3
    # Twice as far along rows is as far as half along columns: the widths of the response differ by four.
    p = pixel_grid((5, 5), dtype=torch.float64)
    spread = torch.einsum("dx,xa->da", kernels.flatten(1), p.square())
    torch.testing.assert_close(spread[:, 0], 4 * spread[:, 1], rtol=0.01, atol=0.01)


@pytest.mark.parametrize("size", [3, 5, 7])
def test_pixels_are_corrected(size):
    """The response to smooth fields changes far less than that of kernels drawn at random, or sampled from rings."""
    change = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    sheared = ad.Group(change @ SO2.algebra.basis @ torch.linalg.inv(change))
    for group in (SO2, ad.known.cyclic(8), sheared):
        found = kernel_basis(group, size)
        assert found.error < 0.01 * found.plain and not found.note
    for group in (SCALINGS, GL, ad.known.special_linear(2), ad.Group(ad.known.so(1, 1))):
        found = kernel_basis(group, size)
        assert found.error > 0.15 * found.plain and f"no layer with a window of {size} x {size} pixels" in found.note


def test_kernels_for_smooth_fields_are_a_point_a_laplacian_and_its_square():
    found, rings = kernel_basis(SO2, 5, smooth=True), kernel_basis(SO2, 5)
    assert found.dimension == rings.dimension == 3 and found.error < 0.5 * rings.error
    kernels = found.kernels[:, 0, 0]
    assert kernels.flatten(1).norm(dim=1).max() < 1 + 1e-9
    p = pixel_grid((5, 5), dtype=torch.float64)
    parabola, quartic = (p.square().sum(1).reshape(5, 5) ** k for k in (1, 2))
    sums = torch.stack([(kernels * f).sum((1, 2)) for f in (torch.ones(5, 5), parabola, quartic)], 1)
    assert (sums[0, 1:].abs() < 1e-6).all() and (sums[1, 0] / sums[1, 1]).abs() < 0.05
    assert (sums[2, 0] / sums[2, 2]).abs() < 0.05


def test_the_basis_of_the_algebra_does_not_matter():
    scaled = ad.Group(-3.0 * SO2.algebra.basis)
    a, b = kernel_basis(SO2, 5).kernels.flatten(1), kernel_basis(scaled, 5).kernels.flatten(1)
    torch.testing.assert_close(a.mT @ a, b.mT @ b)


def test_it_is_remembered():
    group = ad.Group(SO2.algebra.basis * 1.25)
    assert kernel_basis(group, 5) is kernel_basis(group, 5)


def test_a_sheared_group_has_kernels_as_good_as_the_straight_one():
    """Waves are drawn by a law that the group keeps: the correction is the same problem in other coordinates."""
    change = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    sheared = ad.Group(change @ SO2.algebra.basis @ torch.linalg.inv(change))
    kinds = [resolve("circle(2)", group) for group in (SO2, sheared)]
    straight, other = (
        kernel_basis(group, 5, in_type=kind, out_type=kind) for group, kind in zip((SO2, sheared), kinds, strict=True)
    )
    assert other.dimension == straight.dimension == 49
    assert other.error < 1.1 * straight.error


def test_rectangles_need_groups_that_keep_them():
    mirrors = ad.Group.close(ad.known.trivial(2), torch.diag_embed(torch.tensor([[1.0, -1.0], [-1.0, 1.0]])))
    assert kernel_basis(mirrors, (3, 5)).dimension == 6
    with pytest.raises(InputError, match="must be square"):
        kernel_basis(ad.known.cyclic(4), (3, 5))


def test_wrong_input():
    with pytest.raises(InputError, match="act on the plane"):
        kernel_basis(ad.known.special_orthogonal(3), 3)
    with pytest.raises(InputError, match="`kernel_size` must be positive"):
        kernel_basis(SO2, 0)
    with pytest.raises(InputError, match="must be finite for regular fields"):
        regular(SO2)
    with pytest.raises(InputError, match="must be a multiple of 4"):
        regular(ad.known.cyclic(4)).fields(6)
