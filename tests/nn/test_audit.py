"""The audit: planted defects are found and named, and clean models pass."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.errors import InputError
from atlasd.nn import GroupActivation, GroupConv2d, audit, export, vector
from atlasd.runtime.random import stream

C4 = ad.known.cyclic(4)


def layers(seed=0, **broken):
    """Three layers on regular fields of C4; `broken` replaces some of them."""
    kind = {"group": C4, "field_type": "regular"}
    options = {"group": C4, "padding": 1, "generator": stream(seed, "weights")}
    parts = {
        "first": GroupConv2d(1, 8, 3, out_type="regular", **options),
        "act1": GroupActivation(8, **kind),
        "second": GroupConv2d(8, 8, 3, in_type="regular", out_type="regular", **options),
        "act2": GroupActivation(8, **kind),
        "third": GroupConv2d(8, 2, 3, in_type="regular", **options),
    }
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict({**parts, **broken}))


@pytest.fixture
def x():
    return torch.randn(12, 1, 12, 12, generator=stream(0, "audit"))


def test_clean_models_pass(x):
    found = audit(layers(), x, C4)
    assert found.symmetric and found.culprit is None and found.outputs == ("[0]", "[1]")
    assert "has the symmetry C4" in str(found)


class Half(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.to(torch.bfloat16)).float()


class Position(nn.Module):
    """A convolution that is told the row."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(9, 8, 1)

    def forward(self, x):
        rows = torch.linspace(-1, 1, x.shape[2]).reshape(1, 1, -1, 1).expand(len(x), 1, *x.shape[2:])
        return self.inner(torch.cat([x, rows], 1))


@pytest.mark.parametrize(
    ("defect", "name", "cause"),
    [
        ({"second": nn.Conv2d(8, 8, 3, padding=1)}, "second", "weights"),
        ({"act1": nn.Sequential(nn.ReLU(), nn.ZeroPad2d((1, 0, 1, 0)), nn.AvgPool2d(2, 1))}, "act1.1", "padding"),
        ({"second": GroupConv2d(8, 8, 3, group=C4, padding=1, stride=2, in_type="regular", out_type="regular")},
         "second", "stride"),
        ({"act2": nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2))}, "act2.1", "pooling"),
        ({"act1": Position()}, "act1.inner", "position"),
        ({"second": Half(nn.Conv2d(8, 8, 1).to(torch.bfloat16))}, "second.inner", "half"),
    ],
    ids=["layer", "padding", "stride", "pooling", "position", "half"],
)  # fmt: skip
def test_planted_defects_are_named(defect, name, cause, x):
    found = audit(layers(**defect), x, C4)
    assert found.broken and not found.symmetric
    assert found.culprit is not None and found.culprit.name == name
    assert cause in found.culprit.cause


@pytest.mark.parametrize("defect", ["padding", "positions", "crop", "unwatched layer"])
def test_what_is_done_between_layers_is_no_fault_of_a_layer(defect, x):
    class Rows(nn.Module):
        def forward(self, z):
            return z + torch.linspace(-1, 1, z.shape[2]).reshape(-1, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            kinds = {"group": C4, "padding": 1, "out_type": "regular", "generator": stream(1)}
            self.first, self.last = GroupConv2d(1, 8, 3, **kinds), GroupConv2d(8, 8, 3, in_type="regular", **kinds)
            self.rows = Rows()

        def forward(self, z):
            z = self.first(z)
            if defect == "padding":
                z = nn.functional.pad(z, (1, 0, 1, 0))[..., :-1, :-1]
            if defect == "positions":
                z = z + torch.linspace(-1, 1, z.shape[2]).reshape(-1, 1)
            if defect == "unwatched layer":
                return self.last(self.rows(z))
            return self.last(z[..., 1:, :] if defect == "crop" else z)

    found = audit(Net().eval(), x, C4).culprit
    assert found is not None
    if defect == "unwatched layer":
        assert found.name == "rows" and not found.cause
    else:
        assert found.name == "last" and found.cause.startswith("what is done to its inputs between the layers")


@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_tokens_of_patches_are_followed_as_a_grid(class_token, positions, x):
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Sequential(nn.AvgPool2d(3), nn.Conv2d(1, 8, 1))
            self.attend = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, z):
            z = self.embed(z).flatten(2).mT
            z = torch.cat([3 * torch.ones_like(z[:, :1]), z], 1) if class_token else z
            places = torch.linspace(-1, 1, z.shape[1]).reshape(-1, 1)
            z = self.attend(z + places if positions else z)
            return self.head(z[:, 0] if class_token else z.mean(1))

    torch.manual_seed(3)
    found = audit(Tokens().eval(), x, C4)
    assert found.broken == positions and found.symmetric != positions
    if positions:
        assert found.culprit.name.startswith("attend.") and "adding positions" in found.culprit.cause


def test_added_positions_are_named_in_a_program(x):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.places = nn.Parameter(torch.linspace(-1, 1, 12).reshape(-1, 1))

        def forward(self, z):
            return nn.functional.avg_pool2d(z, 3, 1, 1).relu() + self.places

    found = audit(torch.export.export(Net(), (x,)).module(), x, C4).culprit
    assert found.kind == "add" and "positions" in found.cause


def test_a_layer_that_too_few_samples_can_judge_is_not_cleared():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
    v = torch.randn(400, 3, generator=stream(2, "vectors"))
    many, few = (audit(model, part, ad.known.so(3)).culprit for part in (v, v[:40]))
    assert many.name == "0" and "samples" not in many.cause
    assert "a layer before it, which takes more samples" in few.cause


def test_chance_in_a_model_is_no_breaking(x):
    def model(z, breaking=0.0):
        y = nn.functional.avg_pool2d(z, 3, 1, 1)
        return y + 0.01 * torch.randn(y.shape) + breaking * y.roll(1, -1)

    torch.manual_seed(4)
    found = audit(model, x, C4)
    assert not found.broken and not found.symmetric and "differ from call to call" in found.notes[-1]
    assert audit(lambda z: model(z, 0.5), x, C4).broken
    assert not any("call to call" in note for note in audit(nn.AvgPool2d(3, 1, 1).bfloat16(), x.bfloat16(), C4).notes)


def test_the_layer_is_named_in_three_dimensions():
    torch.manual_seed(5)
    x = torch.randn(8, 1, 7, 7, 7)
    even = nn.AvgPool3d(3, 1, 1)
    assert audit(even, x, ad.known.octahedral()).symmetric
    assert audit(nn.Sequential(even, nn.Conv3d(1, 2, 3)), x, ad.known.octahedral()).culprit.name == "1"


def test_inputs_that_a_model_does_not_take_are_one_line(x):
    with pytest.raises(InputError, match="got float64 numbers of shape"):
        audit(nn.Conv2d(1, 1, 3), x.double(), C4)


def test_batch_norm_without_averages_is_noted(x):
    model = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.BatchNorm2d(1, track_running_stats=False)).eval()
    found = audit(model, x, C4)
    assert found.symmetric and "without running averages (1): samples depend on their batch" in str(found)


def test_half_precision_is_noted_where_rounding_hides_it(x):
    net = layers()
    net.second = Half(net.second.export().to(torch.bfloat16))
    assert any("half precision from layer second.inner" in note for note in audit(net, x, C4).notes)


def test_only_the_broken_output_is_named(x):
    def model(x):
        return {"mean": x.mean((2, 3)), "corner": x[..., 0, 0]}

    found = audit(model, x, C4)
    assert found.outputs == ("mean[0]", "corner[0]")
    for e in found.elements:
        assert e.strengths[0] < 1e-4 and e.strengths[1] > 0.5 and e.lower[1] > 0.2
    assert found.layers == () and "cannot be watched" in found.notes[0]


def test_rounding_is_no_breaking():
    """Outputs that vary by some units of the last place only: nothing can be said in single precision."""
    x = torch.randn(16, 1, 12, 12, generator=stream(7))

    def model(z):
        return 0.1 + 3e-6 * z.to(torch.float64).square().mean((2, 3)).to(z) + 1e-8 * z[:, :, 0, 0]

    assert not audit(model, x, C4).broken and not audit(model, x, C4).symmetric
    assert audit(model, x.double(), C4).broken


def test_constant_models_prove_nothing(x):
    found = audit(lambda x: torch.ones(len(x), 1), x, C4)
    assert not found.symmetric and not found.broken


def test_vectors_and_the_strength_of_a_generator():
    x = torch.randn(200, 3, generator=stream(1))
    group = ad.known.special_orthogonal(3)
    assert audit(lambda x: x.square().sum(1), x, group).symmetric
    tilted = audit(lambda x: x.square().sum(1) + 0.5 * x[:, 0], x, group)
    by_generator = [max(e.worst for e in tilted.elements[2 * k : 2 * k + 2]) for k in range(3)]
    assert sorted(s > 1e-3 for s in by_generator) == [False, True, True]
    assert audit(lambda x: x * x.norm(dim=1, keepdim=True), x, group, outputs=vector()).symmetric


def test_the_group_is_discovered_where_none_is_given():
    x = torch.randn(300, 2, generator=stream(2))
    found = audit(lambda x: x.square().sum(1), x)
    assert found.found is not None and found.group.dimension == 1 and found.symmetric


def test_fix_shows_its_price(x):
    torch.manual_seed(0)
    model = nn.Conv2d(1, 1, 3, padding=1)
    assert audit(model, x, C4, fix=False).price is None
    with pytest.raises(InputError, match="`fix` must have targets"):
        audit(model, x, C4, fix=True)
    for other in (x.mean((1, 2, 3)), torch.zeros(12, 3, dtype=torch.long)):
        with pytest.raises(InputError, match="targets must be like the outputs of the model"):
            audit(model, x, C4, other, fix=True)


def test_wrong_input():
    with pytest.raises(InputError, match="at least 4 samples"):
        audit(nn.Identity(), torch.zeros(2, 1, 5, 5), C4)
    with pytest.raises(InputError, match="must be finite, got NaN"):
        audit(nn.Identity(), torch.full((5, 1, 5, 5), torch.nan), C4)


def test_fix_averages_and_shows_the_price(x, monkeypatch):
    torch.manual_seed(0)
    model, y = nn.Conv2d(1, 1, 3, padding=1), nn.functional.avg_pool2d(x, 3, 1, 1)
    monkeypatch.setattr("atlasd.nn.auditing.discover", lambda *a, **k: None)  # the data are not the question here
    price = audit(model, x, C4, y, fix=True).price
    assert price is not None and price[1] < price[0]  # an isotropic target: averaging helps


def test_what_a_module_does_beside_its_layers_is_named(x):
    class Shifted(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.places = nn.Parameter(torch.randn(12, 12, generator=stream(3)))

        def forward(self, z):
            return self.inner(z) + 0.1 * self.places

    last = audit(nn.Sequential(layers(), Shifted(nn.Identity())), x, C4)
    assert last.culprit is not None and last.culprit.name == "1" and "beside its layers" in last.culprit.cause
    first = audit(nn.Sequential(OrderedDict(shift=Shifted(nn.Identity()), rest=layers())), x, C4)
    assert first.culprit is not None and first.culprit.name == "shift"
    assert audit(nn.Sequential(nn.Sequential(layers()), nn.Identity()), x, C4).symmetric


def test_no_symmetry_is_not_called_trivial():
    x = torch.randn(200, 2, generator=stream(2))
    found = audit(lambda x: (x[:, 0] + 0.3 * x[:, 1] ** 2).tanh() + x[:, 1] ** 3, x)
    assert not found.elements and str(found).splitlines()[0] == f"The model: {found.found.answer}."
    assert found.found.answer in ("no symmetry", "cannot tell")


def test_fix_brings_to_a_standard_pose_where_there_is_no_average(monkeypatch):
    monkeypatch.setattr("atlasd.nn.auditing.discover", lambda *a, **k: None)
    x = torch.randn(64, 3, 4, generator=stream(0))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
    found = audit(model, x, ad.known.lorentz(1), x[:, 0, 0], fix=True)
    assert found.price is not None and "standard pose" in str(found)


def test_images_to_numbers_have_a_group_too():
    x = nn.functional.avg_pool2d(torch.randn(32, 1, 17, 17, generator=stream(0)), 7, 1, 3)
    found = audit(lambda z: z.square().mean((1, 2, 3)), x)
    assert found.found is not None and (found.group.dimension or found.group.components > 1) and found.symmetric
    labels = torch.arange(32) % 2
    other = audit(lambda z: z.square().mean((1, 2, 3)), x, C4, labels)
    assert other.data is None and any("what the data have cannot be discovered" in n for n in other.notes)


@pytest.mark.parametrize("defect", ["weights", "stride", "padding", "position"])
def test_layers_of_exported_programs_are_named(defect, x):
    """Weights are no inputs of a layer, and causes are read off the operations."""
    torch.manual_seed(0)

    class Rows(nn.Module):
        def forward(self, z):
            rows = torch.linspace(-1, 1, z.shape[2]).reshape(1, 1, -1, 1).expand(len(z), 1, z.shape[2], z.shape[3])
            return torch.cat([z, rows], 1)

    broken = {
        "weights": nn.Conv2d(4, 4, 3, padding=1),
        "stride": nn.AvgPool2d(3, 2, 1),
        "padding": nn.ZeroPad2d((1, 0, 0, 0)),
        "position": Rows(),
    }[defect]
    first = GroupConv2d(1, 4, 3, group=C4, padding=1, out_type="regular")
    model = export(nn.Sequential(first, nn.ReLU(), broken, nn.ReLU())).eval()
    program = torch.export.export(model, (x,)).module()
    found = audit(program, x, C4)
    assert found.culprit is not None and found.culprit.name.startswith("2"), found
    words = {"weights": "constraint", "stride": "pooling: steps", "padding": "sides", "position": "position"}[defect]
    assert words in found.culprit.cause
