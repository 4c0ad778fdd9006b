"""Networks on a metric: what they are invariant to, and what they are not."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from atlasd.algebra.group import Group
from atlasd.algebra.known import galilei, gl, lorentz, orthogonal, scaling, sl, so, sp
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError
from atlasd.nn import EGNN, AtlasGNN, LieGNN, LorentzNet, LorentzNetWithoutMetric, MetricGNN
from atlasd.nn import metric_gnn as module
from atlasd.nn.checks import field_error
from atlasd.nn.groups import elements_inside, elements_outside, scalings
from atlasd.nn.metric_gnn import minkowski
from atlasd.nn.metrics import save_metric
from atlasd.runtime.random import stream
from atlasd.studies.jets.downstream import auroc, log_odds, train_tagger

SMALL = {"hidden": 8, "layers": 3, "step": 0.05}
BUDGET = SimpleNamespace(epochs=2, batch=32, learning_rate=3e-4)
TILT = torch.matrix_exp(0.2 * torch.randn(4, 4, generator=stream(3, "tilt"), dtype=torch.float64))
TILTED = TILT.T @ minkowski().double() @ TILT
NETWORKS = {
    "LorentzNet": (LorentzNet, lorentz()),
    "any metric": (
        lambda **options: MetricGNN(TILTED, **options),
        Group(torch.linalg.inv(TILT) @ so(1, 3).basis @ TILT),
    ),
    "AtlasGNN": (
        lambda **options: AtlasGNN(LieAlgebra(torch.linalg.inv(TILT) @ so(1, 3).basis @ TILT), **options),
        Group(torch.linalg.inv(TILT) @ so(1, 3).basis @ TILT),
    ),
    "EGNN": (EGNN, orthogonal(4)),
}
laws = pytest.mark.parametrize("name", NETWORKS)
ALL = {**{name: make for name, (make, _) in NETWORKS.items()}, "without": LorentzNetWithoutMetric}
every = pytest.mark.parametrize("name", ALL)


def output_change(function, x, elements):
    """Root-mean-square change of the outputs in units of their spread."""
    return float(field_error(function, x, elements).square().mean().sqrt())


def jets(count=12, length=7, seed=0, dtype=torch.float64):
    """Vectors with positive energy and a mass of some GeV, of sets of different lengths."""
    generator = stream(seed, "jets")
    p = 10 * torch.randn(count, length, 3, generator=generator, dtype=dtype)
    mass = 1 + torch.rand(count, length, 1, generator=generator, dtype=dtype)
    x = torch.cat([(p.square().sum(-1, keepdim=True) + mass.square()).sqrt(), p], -1)
    kept = torch.arange(length) < torch.randint(2, length + 1, (count, 1), generator=generator)
    return x * kept[..., None]


def ready(make, x=None, **options):
    x = jets() if x is None else x
    network = make(**{**SMALL, **options}).double().eval()
    network.standardise(x)
    return network


@laws
def test_isometries_leave_the_outputs_alone(name):
    make, group = NETWORKS[name]
    x, network = jets(), ready(make)
    inside = elements_inside(group, 6, generator=stream(0, "inside"), scale=0.7)
    outside = elements_outside(group, 6, generator=stream(0, "outside"), scale=0.7)
    odds = lambda x: log_odds(network, x)  # noqa: E731
    assert output_change(odds, x, inside) < 1e-6
    assert output_change(odds, x, outside) > 1e-2
    assert output_change(odds, x, scalings(4, 6, generator=stream(0, "scaling"))) > 1e-3


@laws
def test_vectors_move_with_the_group(name):
    """Inside, vectors turn as the inputs do: g first or last is the same."""
    make, group = NETWORKS[name]
    x, network = jets(), ready(make)
    g = elements_inside(group, 1, generator=stream(1, "inside"))[0]
    other = elements_outside(group, 1, generator=stream(1, "outside"))[0]
    present = (x != 0).any(-1, keepdim=True).double()

    def layer(x):
        h = network.embed(network._nodes(x))
        return network._layer(network.blocks[0], x, h, present)[0]

    torch.testing.assert_close(layer(x @ g.T), layer(x) @ g.T, rtol=1e-8, atol=1e-8)
    assert (layer(x) - x).norm() > 1e-3 * x.norm()
    assert (layer(x @ other.T) - layer(x) @ other.T).norm() > 1e-4 * x.norm()


def test_networks_are_not_invariant_to_each_other_s_groups():
    x = jets()
    boosts = elements_inside(lorentz(1), 6, generator=stream(0, "lorentz"))
    turns = elements_inside(orthogonal(4), 6, generator=stream(0, "turns"))
    change = {
        name: [output_change(lambda x, n=network: log_odds(n, x), x, g) for g in (boosts, turns)]
        for name, network in {name: ready(make) for name, make in ALL.items()}.items()
    }
    assert change["LorentzNet"][0] < 1e-6 < 1e-2 < change["LorentzNet"][1]
    assert change["EGNN"][1] < 1e-6 < 1e-2 < change["EGNN"][0]
    assert min(change["without"]) > 1e-2
    assert min(change["any metric"]) > 1e-2


@every
def test_order_and_padding_do_not_matter(name):
    x, network = jets(), ready(ALL[name])
    expected = network(x)
    shuffled = x[:, torch.randperm(x.shape[1], generator=stream(0, "order"))]
    torch.testing.assert_close(network(shuffled), expected)
    padded = torch.cat([x, torch.zeros(len(x), 5, 4, dtype=x.dtype)], 1)
    torch.testing.assert_close(network(padded), expected)
    mask = (x != 0).any(-1)
    junk = torch.where(mask[..., None], x, 1e3)
    torch.testing.assert_close(network(junk, mask), expected)
    assert (network(junk) - expected).abs().max() > 1e-3  # without the mask the junk counts
    alone = torch.cat([network(part[None, part.abs().amax(-1) > 0]) for part in x])
    torch.testing.assert_close(alone, expected)


@every
@pytest.mark.parametrize("length", [1, 2, 200])
def test_lengths(name, length):
    x = jets(3, length, dtype=torch.float32) if length > 1 else jets(3, 2)[:, :1].float()
    logits = ALL[name](**SMALL)(x)
    assert logits.shape == (3, 2) and logits.dtype == torch.float32 and bool(logits.isfinite().all())


@every
def test_gradients_reach_every_parameter(name):
    x = jets(32)
    network = ready(ALL[name], x)
    functional.cross_entropy(network(x), torch.arange(32) % 2).backward()
    for label, parameter in network.named_parameters():
        assert parameter.grad is not None and bool((parameter.grad != 0).any()), label
        assert bool(parameter.grad.isfinite().all()), label


def test_large_messages_are_computed_again_with_the_same_gradients(monkeypatch):
    x = jets()
    networks = [ready(LorentzNet), ready(LorentzNet)]
    for network, large in zip(networks, (0, 10**9), strict=True):
        monkeypatch.setattr(module, "_LARGE", large)
        network(x).square().sum().backward()
    for a, b in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_the_size_of_the_metric_does_not_matter():
    x = jets()
    one, other = (ready(lambda s=s, **options: MetricGNN(s * TILTED, **options)) for s in (1.0, 7.0))
    torch.testing.assert_close(one(x), other(x))


def boost(rapidity):
    generator = torch.zeros(4, 4, dtype=torch.float64)
    generator[0, 3] = generator[3, 0] = rapidity
    return torch.matrix_exp(generator)


def test_large_boosts_in_the_default_setting():
    """Vectors in double precision, weights as they come: in single precision."""
    x, network = jets(40), LorentzNet().eval()
    network.standardise(x)
    assert network.last.weight.dtype == torch.float32 and network(x).dtype == torch.float32
    for rapidity in (1.0, 3.0, -3.0):
        assert output_change(lambda x: log_odds(network, x), x, boost(rapidity)[None]) < 1e-4
    # Control: the same boost is seen by a network on another metric.
    assert output_change(lambda x: log_odds(EGNN().eval(), x), x, boost(1.0)[None]) > 1e-2


def test_antisymmetric_forms():
    group = Group(sp(4))
    network = AtlasGNN(sp(4), **SMALL).double().eval()
    x = torch.randn(30, 5, 4, generator=stream(0, "phase space"), dtype=torch.float64)
    network.standardise(x)
    odds = lambda x: log_odds(network, x)  # noqa: E731
    assert output_change(odds, x, elements_inside(group, 4, generator=stream(0, "inside"))) < 1e-6
    assert output_change(odds, x, elements_outside(group, 4, generator=stream(0, "outside"))) > 1e-2
    torch.testing.assert_close(network(x[:, [2, 0, 1, 4, 3]]), network(x))
    with pytest.raises(InputError, match="symmetric for distances"):
        MetricGNN(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), relative=True)


def two_circles():
    basis = torch.zeros(2, 4, 4)
    basis[0, 0, 1], basis[0, 1, 0], basis[1, 2, 3], basis[1, 3, 2] = -1, 1, -1, 1
    return LieAlgebra(basis)


@pytest.mark.parametrize(
    ("algebra", "reason"),
    [
        (sl(3), "exactly one form.*got none; use EquivariantMLP"),
        (gl(2), "got none"),
        (so(1, 3).sum(scaling(4)), "got none; it holds scalings, pass conformal=True"),
        (two_circles(), "exactly one form.*got 4"),
        (LieAlgebra(torch.zeros(0, 4, 4)), "must have generators"),
        (galilei(1), "exactly one form|not degenerate"),
    ],
    ids=["sl(3)", "gl(2)", "scaling", "two circles", "none", "Galilei"],
)
def test_algebras_without_one_good_form_are_refused(algebra, reason):
    with pytest.raises(InputError, match=reason):
        AtlasGNN(algebra, **SMALL)


def test_scalings_may_be_left_out_of_account():
    x, network = jets(), ready(lambda **options: AtlasGNN(so(1, 3).sum(scaling(4)), conformal=True, **options))
    inside = elements_inside(lorentz(1), 4, generator=stream(0, "inside"))
    assert output_change(lambda x: log_odds(network, x), x, inside) < 1e-6


def test_features_edges_order_and_vectors():
    x, g = jets(6, 5), elements_inside(lorentz(1), 1, generator=stream(1, "inside"))[0]
    network = LorentzNet(**SMALL, node_features=2, pair_features=1, positions=5, vectors=2).double().eval()
    network.standardise(x)
    nodes, pairs = (torch.randn(6, 5, *s, generator=stream(2, "given"), dtype=torch.float64) for s in ((2,), (5, 1)))
    edges = torch.tensor([[b, i, j] for b in range(6) for i in range(5) for j in range(5) if abs(i - j) < 2])
    logits, vectors = network(x, nodes=nodes, pairs=pairs, edges=edges)
    with pytest.raises(InputError, match="count from 0"):
        network(x, nodes=nodes, pairs=pairs, edges=torch.tensor([[0, 0, 5]]))
    assert vectors.shape == (6, 2, 4)
    moved = network(x @ g.T, nodes=nodes, pairs=pairs, edges=edges)
    torch.testing.assert_close(moved[0], logits)
    torch.testing.assert_close(moved[1], vectors @ g.T)
    for other in ({"nodes": 2 * nodes}, {"pairs": 2 * pairs}, {"edges": edges[::2]}):
        changed = network(x, **{"nodes": nodes, "pairs": pairs, "edges": edges, **other})[0]
        assert (changed - logits).abs().max() > 1e-6
    order = [1, 0, 2, 3, 4]
    swapped = network(x[:, order], nodes=nodes[:, order], pairs=pairs[:, order][:, :, order])[0]
    assert (swapped - network(x, nodes=nodes, pairs=pairs)[0]).abs().max() > 1e-6  # places matter
    with pytest.raises(InputError, match="`nodes` must have shape"):
        network(x)
    with pytest.raises(InputError, match="`edges` must be integers"):
        network(x, nodes=nodes, pairs=pairs, edges=edges.float())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_programs_are_exported(tmp_path):
    network, x = LorentzNet(**SMALL).eval(), jets(4, 6, dtype=torch.float32)
    network.standardise(x)
    program = torch.export.export(network, (x,))
    torch.testing.assert_close(program.module()(x), network(x))


def test_seeded_and_alone_in_its_randomness():
    state = torch.get_rng_state()
    a, b, c = (LorentzNet(**SMALL, generator=stream(s, "weights")) for s in (0, 0, 1))
    x = jets().float()
    assert torch.equal(a(x), b(x)) and not torch.equal(a(x), c(x))  # in training mode: dropout is seeded too
    assert not torch.equal(a(x), a(x)) and torch.equal(a.eval()(x), a(x))
    assert torch.equal(state, torch.get_rng_state())


def test_the_paper_s_size():
    network = LorentzNet()
    assert len(network.blocks) == 6 and network.head.in_features == 72
    assert 150_000 < network.parameter_count < 300_000


def test_metric_from_a_file(tmp_path):
    path = save_metric(TILTED, tmp_path / "liegan.json")
    x = jets()
    expected = ready(lambda **options: MetricGNN(TILTED, **options))(x)
    torch.testing.assert_close(ready(lambda **options: LieGNN(path, **options))(x), expected)


def trained(make, shuffle=False):
    """AUROC of the task whether the mass of two vectors is large, after a few seconds."""
    x = jets(1000, 2, dtype=torch.float32)
    total = x.sum(1)
    mass = total[:, 0] ** 2 - total[:, 1:].square().sum(-1)
    label = (mass > mass.median()).long()
    known = label[torch.randperm(500, generator=stream(0, "shuffled"))] if shuffle else label[:500]
    network = make(hidden=8, layers=2, dropout=0.0, generator=stream(0, "weights"))
    budget = SimpleNamespace(epochs=5, batch=25, learning_rate=1e-2)
    losses = train_tagger(network, x[:500], known, budget, generator=stream(0, "order")).losses
    assert len(losses) == 5 and not network.training
    return auroc(log_odds(network, x[500:]), label[500:])


def test_a_short_training_beats_chance():
    right = trained(LorentzNet)
    assert right > 0.95
    assert trained(EGNN) < right - 0.02  # the wrong metric, with the same budget
    assert trained(LorentzNet, shuffle=True) < 0.8


def test_training_breaks_no_symmetry():
    x = jets(200, 4)
    network = LorentzNet(**SMALL, generator=stream(0, "weights"))
    train_tagger(network, x.float(), torch.arange(200) % 2, BUDGET, generator=stream(0, "order"))
    exact = copy.deepcopy(network).double()
    inside = elements_inside(lorentz(), 4, generator=stream(0, "inside"))
    assert output_change(lambda x: log_odds(exact, x), x, inside) < 1e-6


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MetricGNN(torch.ones(4, 3)), r"`metric` must have shape \(n, n\), got \(4, 3\)"),
        (lambda: MetricGNN(torch.zeros(4, 4)), "finite and not zero"),
        (lambda: MetricGNN(torch.full((4, 4), float("nan"))), "finite and not zero"),
        (lambda: MetricGNN(torch.tensor([[1.0, 1.0], [0.0, 1.0]])), "symmetric"),
        (lambda: MetricGNN(None), "give `size`"),
        (lambda: MetricGNN(None, size=4, relative=True), "for distances"),
        (lambda: MetricGNN(minkowski(), size=3), "that of the metric, 4, got 3"),
        (lambda: LorentzNet(hidden=0), "`hidden` must be at least 1"),
        (lambda: LorentzNet(dropout=1.0), "`dropout`"),
        (lambda: LorentzNet(**SMALL)(torch.ones(2, 4)), r"shape \(B, P, 4\), got \(2, 4\)"),
        (lambda: LorentzNet(**SMALL)(torch.ones(2, 5, 3)), r"got \(2, 5, 3\)"),
        (lambda: LorentzNet(**SMALL)(torch.ones(2, 5, 4), torch.ones(2, 5)), "`mask` must be bool"),
        (lambda: LorentzNet(**SMALL)(torch.zeros(2, 5, 4)), "got 2 without one"),
        (
            lambda: train_tagger(LorentzNet(**SMALL), torch.ones(3, 2, 4), torch.ones(3), BUDGET, generator=stream(0)),
            "`label` must be integer classes",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
