"""GroupConv2d stands where Conv2d stood, and leaves atlasd behind when it is exported."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.errors import InputError
from atlasd.nn import GroupActivation, GroupBatchNorm2d, GroupConv2d, GroupPool, circle, export, field_error, regular
from atlasd.runtime.random import stream

C4, SO2 = ad.known.cyclic(4), ad.known.special_orthogonal(2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding": 2},
        {"padding": "same"},
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": 4},
        {"padding": 2, "padding_mode": "circular"},
        {"bias": False, "padding": (2, 0), "stride": (1, 2)},
    ],
    ids=str,
)
def test_it_does_what_conv2d_does_with_its_kernels(options):
    layer = GroupConv2d(2, 4, 5, group=C4, generator=stream(0), **options)
    plain = nn.Conv2d(2, 4, 5, **options)
    with torch.no_grad():
        plain.weight.copy_(layer.weight)
        if layer.bias is not None:
            plain.bias.copy_(layer.bias)
    x = torch.randn(3, 2, 11, 13, generator=stream(1))
    torch.testing.assert_close(layer(x), plain(x))
    torch.testing.assert_close(layer.export()(x), plain(x))


def test_the_trivial_group_is_conv2d():
    layer = GroupConv2d(3, 2, 3, group=ad.known.cyclic(1))
    assert layer.coefficients.numel() == nn.Conv2d(3, 2, 3).weight.numel()


def test_initial_outputs_have_the_size_of_those_of_conv2d():
    torch.manual_seed(0)
    x = torch.randn(4, 16, 21, 21)
    usual = nn.Conv2d(16, 32, 5, bias=False)(x).std()
    for group, kind in [(C4, "trivial"), (C4, "regular"), (SO2, "trivial"), (ad.known.cyclic(8), "regular")]:
        layer = GroupConv2d(16, 32, 5, group=group, in_type=kind, out_type=kind, bias=False)
        assert 0.6 < layer(x).std() / usual < 1.6


def test_a_step_in_the_weights_goes_as_far_as_in_those_of_conv2d():
    """So the same rates of training suit both."""
    group = ad.known.cyclic(4)
    layer = GroupConv2d(8, 8, 5, group=group, in_type="regular", out_type="regular", generator=stream(0))
    before = layer.weight.detach()
    with torch.no_grad():
        layer.coefficients += 0.01 * torch.randn(layer.coefficients.shape, generator=stream(1)).sign()
    assert float((layer.weight - before).detach().square().mean().sqrt()) == pytest.approx(0.01, rel=0.1)


def test_initial_weights_come_from_the_generator():
    one, two, other = (GroupConv2d(1, 4, 3, group=C4, generator=stream(s, "w")) for s in (0, 0, 1))
    assert torch.equal(one.weight, two.weight) and not torch.equal(one.weight, other.weight)


def test_kind_of_floats_and_state():
    layer = GroupConv2d(1, 3, 3, group=SO2, dtype=torch.float64)
    assert layer.weight.dtype == layer(torch.zeros(1, 1, 5, 5, dtype=torch.float64)).dtype == torch.float64
    other = GroupConv2d(1, 3, 3, group=SO2, dtype=torch.float64)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)


def test_it_learns():
    # A blur is isotropic: kernels of SO(2) can learn it, with three weights.
    target = nn.AvgPool2d(3, 1)
    x = torch.randn(8, 1, 16, 16, generator=stream(2))
    layer = GroupConv2d(1, 1, 3, group=C4, generator=stream(0))
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=50)

    def loss():
        optimizer.zero_grad()
        value = (layer(x) - target(x)).square().mean()
        value.backward()
        return value

    optimizer.step(loss)
    assert loss() < 1e-8


def test_it_says_what_it_is():
    with pytest.warns(UserWarning, match=r"no layer with a window of 5 x 5 pixels is equivariant under GL\+\(2\)"):
        text = repr(GroupConv2d(1, 2, 5, group=ad.known.general_linear_plus(2), padding=2))
    assert "group=GL+(2)" in text and "spatially constant kernels" in text and "trivial->trivial" in text
    assert "constant" not in repr(GroupConv2d(1, 2, 5, group=C4))


def network(group=C4, kind="regular", width=8):
    field = {"group": group, "field_type": kind}
    layers = nn.Sequential(
        GroupConv2d(1, width, 3, group=group, padding=1, out_type=kind, generator=stream(0)),
        GroupActivation(width, **field),
        GroupBatchNorm2d(width, **field),
        GroupPool(width, **field),
    )
    layers(torch.randn(4, 1, 9, 9, generator=stream(1)))
    return layers.eval()


LOADING = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "atlasd":
            raise ImportError("atlasd is blocked")
sys.meta_path.insert(0, Block())
try:
    import atlasd
    raise SystemExit("atlasd was found")
except ImportError:
    pass
import torch
program = torch.export.load(sys.argv[1]).module()
plain = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.SiLU(), torch.nn.BatchNorm2d(8),
    torch.nn.Sequential(torch.nn.Unflatten(1, (2, 4)), torch.nn.MaxPool3d((4, 1, 1)), torch.nn.Flatten(1, 2)),
).eval()
saved = torch.load(sys.argv[2], weights_only=True)
plain.load_state_dict(saved["state"])
for run in (program, plain):
    with torch.no_grad():
        assert (run(saved["x"]) - saved["y"]).abs().max() < 1e-6
assert not any(name.split(".")[0] == "atlasd" for name in sys.modules)
print("same")
"""


@pytest.mark.filterwarnings("ignore")
def test_exported_programs_load_with_torch_alone(tmp_path):
    layers = network()
    plain = export(layers)
    x = torch.randn(2, 1, 9, 9, generator=stream(5))
    with torch.no_grad():
        y = layers(x)
        program = torch.export.export(plain, (x,))
    torch.export.save(program, tmp_path / "net.pt2")
    torch.save({"state": plain.state_dict(), "x": x, "y": y}, tmp_path / "state.pt")
    script = tmp_path / "load.py"
    script.write_text(LOADING)
    command = [sys.executable, "-I", str(script), str(tmp_path / "net.pt2"), str(tmp_path / "state.pt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "same", done.stderr


def test_a_layer_that_is_used_twice_is_exported_twice():
    layer = GroupConv2d(4, 4, 3, group=C4, padding=1, generator=stream(0))
    net = nn.Sequential(layer, nn.ReLU(), layer, nn.Sequential(layer))
    plain, x = export(net), torch.randn(2, 4, 7, 7, generator=stream(1))
    assert all(type(m).__module__.startswith("torch") for m in plain.modules())
    assert plain[0] is plain[2] is plain[3][0] and isinstance(net[2], GroupConv2d)
    torch.testing.assert_close(plain(x), net(x))


def test_doubles_are_exported():
    net = nn.Sequential(
        GroupConv2d(1, 10, 3, group=SO2, out_type=circle(2), generator=stream(0)),
        GroupActivation(10, group=SO2, field_type=circle(2)),
        GroupPool(10, group=SO2, field_type=circle(2)),
    ).double()
    x = torch.randn(2, 1, 7, 7, generator=stream(1), dtype=torch.float64)
    plain = export(net)
    assert plain(x).dtype == torch.float64
    torch.testing.assert_close(plain(x), net(x))


@pytest.mark.parametrize("kind", ["trivial", "regular", "circle(2)"])
def test_modules_are_saved_and_loaded(kind, tmp_path):
    group = SO2 if kind == "circle(2)" else C4
    net = network(group, kind, 20)
    torch.save(net, tmp_path / "net.pt")
    again = torch.load(tmp_path / "net.pt", weights_only=False)
    x = torch.randn(2, 1, 9, 9, generator=stream(5))
    assert torch.equal(again(x), net(x))


def test_the_first_layer_does_not_load_the_compiler():
    code = (
        "import sys, atlasd as ad; from atlasd.nn import GroupConv2d, circle\n"
        "GroupConv2d(5, 5, 5, group=ad.known.special_orthogonal(2), in_type=circle(2), out_type=circle(2))\n"
        "GroupConv2d(1, 1, 5, group=ad.Group(ad.known.so(2).basis * 1.1))\n"
        "assert 'torch._dynamo' not in sys.modules and 'torch._inductor' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


CHANGE = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)


def test_conjugated_rotations_have_all_frequencies(waves):
    back = torch.linalg.inv(CHANGE)
    x, angles = waves(3, (45, 45), length=20.0), torch.tensor([[0.6], [1.9]], dtype=torch.float64)
    errors = {}
    for name, change in (("straight", torch.eye(2, dtype=torch.float64)), ("sheared", CHANGE)):
        group = ad.Group(change @ SO2.algebra.basis @ torch.linalg.inv(change))
        kind = {"group": group, "field_type": "circle(2)"}
        net = nn.Sequential(
            GroupConv2d(1, 10, 5, group=group, padding=2, out_type="circle(2)", generator=stream(0)),
            GroupActivation(10, activation=nn.SiLU(), **kind),
            GroupConv2d(10, 3, 5, group=group, padding=2, in_type="circle(2)", generator=stream(1)),
        )
        turns = change @ SO2.algebra.exp(angles) @ torch.linalg.inv(change)
        errors[name] = float(field_error(net, x, turns, radius=10).max())
        # Control: rotations in the other coordinates are no symmetries.
        other = SO2.algebra.exp(angles) if name == "sheared" else CHANGE @ SO2.algebra.exp(angles) @ back
        assert float(field_error(net, x, other, radius=10).min()) > 10 * errors[name]
    assert max(errors.values()) < 5e-3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_exported_networks_compile():
    layers = network(SO2, circle(2), 10)
    x = torch.randn(2, 1, 9, 9, generator=stream(5))
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(export(layers))(x), layers(x), atol=1e-5, rtol=1e-4)


def test_after_export_it_is_a_plain_convolution():
    exported, plain = GroupConv2d(16, 16, 5, group=C4, padding=2).export(), nn.Conv2d(16, 16, 5, padding=2)
    assert type(exported) is nn.Conv2d and exported.weight.is_contiguous()
    assert exported.weight.shape == plain.weight.shape


def test_wrong_input():
    with pytest.raises(InputError, match="`in_channels` must be a multiple of 4"):
        GroupConv2d(3, 4, 3, group=C4, in_type="regular")
    with pytest.raises(InputError, match="'trivial', 'regular' or 'circle\\(L\\)', got 'spin'"):
        GroupConv2d(4, 4, 3, group=C4, in_type="spin")
    with pytest.raises(InputError, match="must belong to the group"):
        GroupConv2d(4, 4, 3, group=ad.known.cyclic(8), in_type=regular(C4))
    with pytest.raises(InputError, match="needs a group of rotations and mirrors"):
        GroupConv2d(1, 3, 3, group=ad.Group(ad.known.scaling(2)), out_type=circle(1))
    with pytest.raises(InputError, match="`how` must be"):
        GroupPool(4, group=C4, how="sum")
    with pytest.raises(InputError, match="`frequencies` must not be negative"):
        circle(-1)
    with pytest.raises(InputError, match="`values` must be at least 5"):
        circle(2, values=4)
