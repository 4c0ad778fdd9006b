"""The paper's search as published: its settings, predictors in tandem, and a proposal that no verdict stops."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import atlasd as ad
from atlasd.algebra.known import dihedral, so, trivial
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.gradient_steps import GradientSteps
from atlasd.discovery.objective import Objective
from atlasd.discovery.prepare import prepare
from atlasd.discovery.problem import Problem
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.neural import ConvPredictor, MLPPredictor
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.runtime.stages import keeping, resuming


def blur(x: Tensor) -> Tensor:
    line = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    return torch.nn.functional.conv2d(x, (line[:, None] * line)[None, None].to(x), padding=2)


@pytest.fixture(scope="module")
def fields() -> tuple[Tensor, Tensor]:
    x = torch.nn.functional.avg_pool2d(torch.randn(64, 1, 30, 44, generator=stream(0, "fields")), 5, 1)
    return x, 3 * blur(x)


ATLAS = Atlas.at([(12, 12), (12, 27)], in_radius=9, out_radius=6)
NETWORK = ConvPredictor.published(depth=2, hidden=4)
QUICK = {"epochs": 4, "batch": 8, "learning_rate": 3e-2}


def radius(x: Tensor) -> Tensor:
    return x.square().sum(-1).log1p()


def vectors(function, n: int, samples: int = 200) -> Problem:
    x = torch.randn(samples, n, generator=stream(0, "data"))
    return prepare(x, function=function, seed=0, progress=Silent())[0]


def test_settings_of_the_generators():
    search = GradientSearch.published()
    assert (search.charts, search.units, search.clip) == ("sum", "raw", "norm")
    assert (search.anneal, search.push, search.average, search.robust) == (False, 0.0, 0.0, False)
    assert (search.spread, search.epochs, search.batch, search.learning_rate) == (1.0, 10, 16, 1e-3)
    assert search.regardless and not search.held_out and not search.tandem
    assert GradientSearch.published(clip="entries", tandem=True, generators=7).generators == 7


def test_settings_of_the_cosets():
    search = CosetSearch.published()
    assert (search.method, search.starts, search.top, search.normalize) == ("gradient", 16, 8, True)
    assert (search.charts, search.units, search.anneal, search.regardless) == ("sum", "raw", False, True)
    assert CosetSearch.published(normalize=False, loss="cross_entropy").loss == "cross_entropy"


def test_growth_is_limited_by_the_norm_or_by_entries():
    problem = vectors(radius, 2)
    sizes = {}
    for clip in ("norm", "entries"):
        steps = GradientSteps(GradientSearch.published(clip=clip), problem, 1, 0)
        with torch.no_grad():
            steps._basis.copy_(2 * so(2).basis)
        sizes[clip] = float(steps._growth().detach().sum())
    assert sizes["norm"] == 1 and sizes["entries"] == pytest.approx(2**0.5)


def test_the_loss_is_a_sum_over_charts_in_raw_units(fields):
    x, y = fields
    first = {}
    for scale in (1.0, 10.0):
        problem, _ = prepare(x, scale * y, predictor=StencilPredictor(), atlas=ATLAS, seed=0, progress=Silent())
        for charts in ("sum", "mean"):
            search = GradientSearch.published(charts=charts, epochs=1, batch=64)
            first[charts, scale] = GradientSteps(search, problem, 1, 0).run(Silent()).curves["error"][0]
    assert first["sum", 1.0] == pytest.approx(2 * first["mean", 1.0])
    assert first["sum", 10.0] == pytest.approx(10 * first["sum", 1.0], rel=1e-3)


def test_raw_matrices_of_vectors():
    """The start is drawn in the frame of the data, and the answer acts there."""
    stretch = torch.diag(torch.tensor([1.0, 4.0]))
    x = torch.randn(300, 2, generator=stream(0, "data")) @ stretch
    problem, _ = prepare(x, function=radius, seed=0, progress=Silent())
    found = GradientSearch.published(epochs=20, learning_rate=2e-2).find(problem, seed=0, progress=Silent())
    assert ad.LieAlgebra(problem.units.to_raw(found.basis)).distance(so(2)) < 0.1


def test_predictors_learn_in_tandem(fields):
    search = GradientSearch.published(**{**QUICK, "epochs": 10})
    problem, found = search.find_in_data(*fields, predictor=NETWORK, atlas=ATLAS, seed=0)
    losses = found.curves["predictor"]
    assert len(losses) == 80 == len(found.curves["error"])
    assert sum(losses[-8:]) < 0.7 * sum(losses[:8])
    index = torch.arange(8)
    assert problem.outputs(problem.inputs(index)).shape == (8, 2, 1, 13, 13)


def test_tandem_wants_a_network(fields):
    problem, _ = prepare(*fields, predictor=StencilPredictor(), atlas=ATLAS, seed=0, progress=Silent())
    with pytest.raises(InputError, match="`predictor` must be a network that can learn in tandem"):
        GradientSearch.published(tandem=True).find(problem, seed=0, progress=Silent())


def test_a_tandem_search_goes_on_after_an_epoch(fields, tmp_path):
    search = GradientSearch.published(**QUICK)
    ask = lambda: search.find_in_data(*fields, predictor=NETWORK, atlas=ATLAS, seed=0)[1]  # noqa: E731
    whole = ask()
    done = []

    class Stop(Silent):
        def track(self, items, label, total=None):
            for item in items:
                if item == 2 and not done:
                    raise KeyboardInterrupt
                yield item

    with pytest.raises(KeyboardInterrupt), keeping(tmp_path / "run", ["run"], "1"):
        search.find_in_data(*fields, predictor=NETWORK, atlas=ATLAS, seed=0, progress=Stop())
    steps = []
    original = GradientSteps._step
    with pytest.MonkeyPatch.context() as patch, resuming(), keeping(tmp_path / "run", ["run"], "1"):
        patch.setattr(GradientSteps, "_step", lambda self, step: (steps.append(step), original(self, step)))
        again = ask()
    assert min(steps) == 16  # two of four epochs of eight steps were kept
    assert torch.equal(whole.basis, again.basis) and whole.curves == again.curves


def test_a_predictor_without_skill_is_searched_and_the_verdict_stands_beside(fields):
    x, y = fields
    noise = torch.randn(y.shape, generator=stream(1, "noise"))
    found = ad.discover(
        x, noise, atlas=ATLAS, predictor=NETWORK, search=GradientSearch.published(tandem=True, growth=30.0, **QUICK),
        cosets=CosetSearch.published(starts=4, top=2, epochs=1, batch=8), progress=False,
    )  # fmt: skip
    assert not found.verdict.symmetric and not len(found.algebra.basis)
    assert found.proposed.shape == (1, 2, 2) and len(found.proposed_cosets) in (1, 2)
    assert "before the verdict, the search proposed 1 generator(s)" in str(found)


def test_a_constant_is_searched_too():
    x = torch.randn(60, 2, generator=stream(0, "data"))
    search = GradientSearch.published(epochs=2, growth=1.0, learning_rate=0.1)
    found = ad.discover(x, function=lambda z: 0 * z[..., 0], search=search, cosets=False, progress=False)
    assert len(found.proposed) == 1 and not found.verdict.symmetric


def test_proposals_are_kept(tmp_path):
    x = torch.randn(60, 2, generator=stream(0, "data"))
    found = ad.discover(
        x, function=radius, search=GradientSearch.published(epochs=2), progress=False,
        cosets=CosetSearch.published(starts=6, top=3, epochs=2),
    )  # fmt: skip
    found.save(tmp_path)
    assert torch.equal(ad.load(tmp_path).proposed_cosets, found.proposed_cosets)


def test_the_best_by_loss_come_before_duplicates_are_removed():
    problem = vectors(lambda x: x.abs().sum(-1), 2)
    near = dihedral(4).cosets + 0.05 * torch.randn(8, 2, 2, generator=stream(0, "near"), dtype=torch.float64)
    far = 3 * torch.randn(4, 2, 2, generator=stream(1, "far"), dtype=torch.float64)
    search = CosetSearch.published(top=16, epochs=8, learning_rate=5e-3)
    found = search.find(problem, trivial(2), seed=0, initial=torch.cat([near, near, far]))
    assert len(found) == 8 and found.raw == 20  # sixteen best, each element twice
    distance = (problem.units.to_raw(found.matrices)[:, None] - dihedral(4).cosets).flatten(2).norm(dim=-1)
    assert float(distance.amin(1).max()) < 0.1
    few = replace(search, top=3).find(problem, trivial(2), seed=0, initial=torch.cat([near, near, far]))
    assert len(few) <= 3 and float(few.errors.max()) <= float(found.errors.max())


def test_cross_entropy_has_no_upper_end():
    x = torch.randn(400, 2, generator=stream(0, "data"))
    y = (x.square().sum(-1) > 1.4).long()
    problem, _ = prepare(x, y, predictor=MLPPredictor.published(hidden=(16,)), seed=0, progress=Silent())
    search = GradientSearch.published(loss="cross_entropy", epochs=1, batch=400)
    errors = []
    for size in (3.0, 300.0):
        steps = GradientSteps(search, problem, 1, 0)
        with torch.no_grad():
            steps._basis.copy_(torch.eye(2) * torch.tensor(size).log())
        errors.append(steps.run(Silent()).curves["error"][0])
    assert errors[1] > 10 * errors[0]
    assert problem.recipe.relu and problem.recipe.schedule.constant


def test_cross_entropy_is_that_of_the_text():
    """Of the outputs under g with the transformed outputs as targets; a constant map then costs its own entropy."""
    x = torch.randn(80, 2, generator=stream(0, "data"))
    y = (x[:, 0] > 0).long()
    problem, _ = prepare(x, y, predictor=MLPPredictor.published(hidden=(4,)), seed=0, progress=Silent())
    one = torch.eye(2, dtype=torch.float64).expand(80, 1, 2, 2)
    given = problem.inputs(torch.arange(80))
    with torch.no_grad():
        p = problem.outputs(given)
        loss = Objective(problem, loss="cross_entropy", units="raw")(problem.outputs, given, p, one)
    torch.testing.assert_close(loss, -(p * p.log()).sum(2)[:, 0].double(), atol=1e-5, rtol=1e-4)


def test_a_patch_is_zero_beyond_its_edge(fields):
    """As the text has it: what g brings in from beyond is zero and counts; on the disc nothing is brought in."""
    x, y = fields
    problem, _ = prepare(x + 5, y + 15, predictor=StencilPredictor(), atlas=ATLAS, seed=0, progress=Silent())
    angle = torch.tensor(0.7, dtype=torch.float64)
    g = torch.matrix_exp(angle * so(2).basis[0]).expand(4, 2, 2, 2)
    given = problem.inputs(torch.arange(4))
    kind = {"units": "raw", "interpolation": "bilinear"}
    disc, patch = (
        float(Objective(problem, window=w, **kind)(problem.outputs, given, problem.outputs(given), g).mean())
        for w in ("disc", "patch")
    )
    assert patch > 5 * disc


def test_cosets_pass_over_all_samples():
    problem = vectors(lambda x: x.abs().sum(-1), 2, samples=40)
    seen = []
    original = Problem.inputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Problem, "inputs", lambda self, index: (seen.append(index), original(self, index))[1])
        CosetSearch.published(starts=2, top=1, epochs=2, batch=16).find(problem, trivial(2), seed=0)
    assert [len(i) for i in seen[:6]] == [16, 16, 8] * 2
    assert all(sorted(torch.cat(seen[k : k + 3]).tolist()) == list(range(40)) for k in (0, 3))


def test_growth_once_for_each_chart_is_the_mean_over_charts(fields):
    """What the paper's numbers need on heat: a sum over many charts outweighs a growth that is counted once."""
    problem, _ = prepare(*fields, predictor=StencilPredictor(), atlas=ATLAS, seed=0, progress=Silent())
    finals = []
    for settings in (
        {"charts": "sum", "growth": 0.2, "weight": 0.1},
        {"charts": "mean", "growth": 0.1, "weight": 0.05},
    ):
        search = GradientSearch.published(epochs=2, batch=16, learning_rate=1e-2, generators=2, **settings)
        finals.append(GradientSteps(search, problem, 2, 0).run(Silent()).basis)
    torch.testing.assert_close(*finals, atol=1e-6, rtol=1e-4)  # Adam does not feel a common factor
