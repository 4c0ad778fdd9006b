"""Grids, layers and the network on the icosahedron."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.nn import HexConv, HexUpsample, IcosahedralProjection, IcosahedralUNet, icosahedral_grid
from atlasd.runtime.memory import peak_megabytes, reset_peak, resident_megabytes
from atlasd.runtime.random import stream

KERNELS = {"hexagon": {}, "flat": {"flat": True}, "own": {"flat": True, "own": True}}


@pytest.mark.parametrize("resolution", range(7))
def test_a_grid_is_whole(resolution):
    grid = icosahedral_grid(resolution)
    assert len(grid) == 10 * 4**resolution + 2
    assert len(grid.faces) == 20 * 4**resolution
    torch.testing.assert_close(grid.points.norm(dim=-1), torch.ones(len(grid), dtype=torch.float64))
    assert int((grid.shares > 0).sum()) == 6 * len(grid) - 12
    a, b, c = grid.points[grid.faces].unbind(1)
    assert bool(((torch.linalg.cross(a, b) * c).sum(-1) > 0).all())


def test_rings_go_counter_clockwise_and_are_mutual():
    grid = icosahedral_grid(3)
    ring = grid.points[grid.neighbours[12:]]  # (N - 12, 6, 3)
    up = grid.points[12:, None]
    assert bool(((torch.linalg.cross(ring, ring.roll(-1, 1)) * up).sum(-1) > 0).all())
    back = grid.neighbours[grid.neighbours[12:]] == torch.arange(12, len(grid))[:, None, None]
    assert bool(back.any(-1).all())


def test_directions_are_those_of_the_coarser_grid():
    grid = icosahedral_grid(3)
    coarse = grid.coarser
    middle = grid.points[: len(coarse), None] + coarse.points[coarse.neighbours]
    nearer = grid.points[grid.neighbours[: len(coarse)]]
    torch.testing.assert_close(nearer[12:], (middle / middle.norm(dim=-1, keepdim=True))[12:])


def test_the_turns_of_a_triangle_close():
    """Inside a face the sphere's grid is flat: going around a small triangle turns nothing."""
    grid = icosahedral_grid(3)
    for v in range(len(grid.coarser), len(grid), 37):
        for j in range(6):
            u, w = grid.neighbours[v, j], grid.neighbours[v, (j + 1) % 6]
            if min(v, u, w) < 12:
                continue
            there = int((grid.neighbours[u] == w).int().argmax())
            back = int((grid.neighbours[w] == v).int().argmax())
            assert int(grid.turns[v, j] + grid.turns[u, there] + grid.turns[w, back]) % 6 == 0


def test_there_are_sixty_different_rotations():
    rotations = icosahedral_grid(0).rotations
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(60, dtype=torch.float64))
    torch.testing.assert_close(rotations[0], torch.eye(3, dtype=torch.float64))
    apart = torch.cdist(rotations.flatten(1), rotations.flatten(1)) + 9 * torch.eye(60)
    assert float(apart.min()) > 0.5


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kind", KERNELS)
def test_scalars_are_the_mean_over_the_orientations(kind, stride):
    options = {"resolution": 2, "stride": stride, **KERNELS[kind]}
    scalar = HexConv(3, 4, generator=stream(0, "w"), **options)
    regular = HexConv(3, 4, generator=stream(0, "w"), out_field="regular", **options)
    x = torch.randn(2, 3, 162, generator=stream(0, "x"))
    torch.testing.assert_close(scalar(x), regular(x).mean(2))


def test_only_the_centre_and_the_mean_of_the_ring_matter_between_scalars():
    layer = HexConv(2, 2, resolution=2, generator=stream(0, "w"))
    x = torch.randn(1, 2, 162, generator=stream(0, "x"))
    before = layer(x)
    with torch.no_grad():
        layer.weight[..., 1:] = layer.weight[..., 1:].flip(-1)
    torch.testing.assert_close(layer(x), before)
    with torch.no_grad():
        layer.weight[..., 0] += 1
    assert not torch.allclose(layer(x), before)


def test_regular_fields_see_directions():
    """The control of the last test: orientations that are kept tell a kernel from its mirror image."""
    layer = HexConv(2, 2, resolution=2, out_field="regular", generator=stream(0, "w"))
    x = torch.randn(1, 2, 162, generator=stream(0, "x"))
    before = layer(x).relu().mean(2)
    with torch.no_grad():
        layer.weight[..., 1:] = layer.weight[..., 1:].flip(-1)
    assert float((layer(x).relu().mean(2) - before).detach().abs().max()) > 0.05


def test_gradients_are_right():
    layer = HexConv(1, 2, resolution=1, stride=2, generator=stream(0, "w")).double()
    x = torch.randn(1, 1, 42, generator=stream(0, "x"), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))


@pytest.mark.parametrize(("kind", "count"), [("hexagon", 765_945), ("flat", 111_321), ("own", 112_313)])
def test_weights_of_the_paper(kind, count):
    network = IcosahedralUNet(**KERNELS[kind])
    assert sum(p.numel() for p in network.parameters()) == count


def test_a_flat_kernel_with_its_own_centre_is_flat_but_for_single_values():
    layer = HexConv(2, 3, resolution=2, **KERNELS["own"], bias=False, generator=stream(0, "w"))
    plain = HexConv(2, 3, resolution=2, flat=True, bias=False)
    plain.load_state_dict({"weight": layer.weight})
    x = torch.randn(1, 2, 162, generator=stream(0, "x"))
    single = torch.einsum("oc,bcn->bon", layer.weight[:, :, 0, 0] * (layer.own - 1), x)
    torch.testing.assert_close(layer(x), plain(x) + single)
    with pytest.raises(InputError, match="`own` must be False unless `flat`"):
        HexConv(2, 3, resolution=2, own=True)


def test_the_network_learns():
    network = IcosahedralUNet(1, 2, channels=(4, 8), resolution=2, generator=stream(0, "w"))
    x = torch.randn(8, 1, 162, generator=stream(0, "x"))
    y = (x[:, 0] > 0).long()
    optimiser = torch.optim.Adam(network.parameters(), 0.02)
    losses = []
    for _ in range(25):
        loss = torch.nn.functional.cross_entropy(network(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_classes_go_there_and_back():
    projection = IcosahedralProjection(4, torch.linspace(90, -90, 33), torch.arange(64) * 360 / 64)
    labels = torch.zeros(33, 64, dtype=torch.uint8)
    labels[10:20, 20:40] = 2
    there = projection.labels_to_grid(labels)
    assert there.dtype == torch.uint8
    assert set(there.tolist()) == {0, 2}
    assert float((projection.labels_to_map(there) == labels).double().mean()) > 0.95


@pytest.mark.parametrize("rows", [torch.linspace(90, -90, 33), torch.linspace(-85, 85, 35)])
def test_classes_are_those_of_the_nearest_pixel(rows):
    columns = torch.arange(64) * 360 / 64 - 180
    projection = IcosahedralProjection(2, rows, columns)
    x, y, z = projection.grid.points.unbind(-1)
    row = (torch.rad2deg(torch.asin(z))[:, None] - rows).abs().argmin(-1)
    column = ((torch.rad2deg(torch.atan2(y, x))[:, None] - columns + 180) % 360 - 180).abs().argmin(-1)
    found = projection.labels_to_grid(torch.arange(len(rows) * 64).reshape(len(rows), 64))
    assert float((found == row * 64 + column).double().mean()) > 0.9  # but for those just between two
    assert int((found // 64 - row).abs().max()) <= 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: icosahedral_grid(12), "`resolution` must be from 0 to 9, got 12"),
        (lambda: HexConv(1, 1, resolution=0, stride=2), "at least 1 for stride 2"),
        (lambda: HexConv(1, 1, resolution=2, stride=3), "`stride` must be 1 or 2, got 3"),
        (lambda: HexConv(1, 1, resolution=2, in_field="vector"), "'scalar' or 'regular', got 'vector'"),
        (lambda: HexConv(2, 1, resolution=1)(torch.zeros(1, 3, 42)), r"shape \(B, 2, 42\)"),
        (lambda: HexUpsample(resolution=1)(torch.zeros(1, 3, 12)), r"shape \(B, C, 42\)"),
        (lambda: IcosahedralUNet(resolution=3), "at least 4 for 5 blocks down, got 3"),
        (lambda: IcosahedralUNet(channels=()), "`channels` must be positive"),
        (lambda: IcosahedralProjection(2, [0.0, 10, 5], range(0, 360, 10)), "must rise or fall"),
        (lambda: IcosahedralProjection(2, [10.0, 0, -10], range(0, 180, 10)), "evenly once around"),
        (lambda: IcosahedralProjection(2, [10.0], range(0, 360, 10)), "at least 2 and 3 numbers"),
        (lambda: IcosahedralProjection(2, [10.0, 0], range(0, 360, 10), degree=9), "from -1 to 6, got 9"),
        (
            lambda: IcosahedralProjection(2, [10.0, 0], range(0, 360, 10)).to_grid(torch.zeros(3, 36)),
            r"shape \(\*, 2, 36\), got \(3, 36\)",
        ),
        (
            lambda: IcosahedralProjection(2, [10.0, 0], range(0, 360, 10)).to_map(torch.zeros(3)),
            r"shape \(\*, 162\), got \(3,\)",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_rings_are_laid_out_for_some_vertices_at_a_time(monkeypatch):
    """Outputs do not depend on their number, gradients are right, and little but x is kept for the backward pass."""
    from atlasd.nn import icosahedral_layers as module

    x = torch.randn(2, 3, 6, 642, generator=stream(1))
    layer = HexConv(3, 4, resolution=3, in_field="regular", out_field="regular", generator=stream(0))
    whole = layer(x)
    monkeypatch.setattr(module, "_VERTICES", 10)
    kept = {}

    def keep(t):
        kept[t.data_ptr()] = t.numel()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        y = layer(x.clone().requires_grad_())
    torch.testing.assert_close(y, whole)
    assert sum(kept.values()) < 1.2 * x.numel()  # and the kernels
    for fields in (("scalar", "regular"), ("regular", "scalar"), ("regular", "regular")):
        small = HexConv(1, 2, resolution=1, stride=2, in_field=fields[0], out_field=fields[1]).double()
        z = torch.randn(1, 1, *([6] if fields[0] == "regular" else []), 42, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(small, z, fast_mode=True)
        assert torch.autograd.gradcheck(
            lambda w, z=z, small=small: torch.func.functional_call(small, {"weight": w}, z),
            small.weight,
            fast_mode=True,
        )


def test_a_regular_layer_takes_little_more_than_what_it_gives():
    layer = HexConv(4, 4, resolution=6, in_field="regular", out_field="regular", generator=stream(0, "w"))
    small = HexConv(4, 4, resolution=2, in_field="regular", out_field="regular", generator=stream(0, "w"))
    small(torch.randn(1, 4, 6, 162, generator=stream(0, "x")).requires_grad_()).sum().backward()
    x = torch.randn(8, 4, 6, 40962, generator=stream(0, "x")).requires_grad_()  # 30 MB
    reset_peak()
    before = resident_megabytes()
    layer(x).sum().backward()
    assert peak_megabytes() - before < 1.9 * x.numel() * 4 / 2**20  # 20 times the fields where all rings are laid out
