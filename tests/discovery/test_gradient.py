"""The paper's search: it finds known generators, counts them, and refuses what it cannot use."""

import math

import pytest
import torch
from torch import Tensor

from atlasd.algebra.known import sl, so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.prepare import prepare
from atlasd.discovery.problem import Problem
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream


def vectors(function, n: int, samples: int = 256, seed: int = 0) -> Problem:
    x = torch.randn(samples, n, generator=stream(seed, "data"))
    # Isotropic inputs: standard units are raw ones up to a few per cent.
    return prepare(x, function=function, seed=seed, progress=Silent())[0]


def radius(x: Tensor) -> Tensor:
    return x.square().sum(-1).log1p()


def degrees(basis: Tensor, truth: LieAlgebra) -> float:
    return math.degrees(float(LieAlgebra(basis).angles(truth).max()))


@pytest.mark.parametrize("loss", ["mae", "mse"])
def test_rotation_of_an_oracle(loss):
    problem = vectors(radius, 2)
    found = GradientSearch(steps=100, learning_rate=3e-2, loss=loss).find(problem, seed=0, progress=Silent())
    assert found.basis.shape == (1, 2, 2)
    assert found.basis.dtype == torch.float64
    assert degrees(problem.units.to_raw(found.basis), so(2)) < 1.0
    assert len(found.curves["error"]) == 100
    assert found.curves["error"][-1] < 0.05


def test_same_seed_same_answer():
    search = GradientSearch(steps=20)
    first, second = (search.find(vectors(radius, 2), seed=3, progress=Silent()).basis for _ in range(2))
    assert torch.equal(first, second)


def test_three_generators_of_so3():
    search = GradientSearch(generators=3, steps=150, similarity="cosine")
    problem = vectors(radius, 3)
    found = search.find(problem, seed=1, progress=Silent())
    assert len(found.basis) == 3
    assert degrees(problem.units.to_raw(found.basis), so(3)) < 2.0


def test_standard_similarity_stays_in_so3():
    # The paper's regularisation repeats generators more often; what it keeps must still be rotations.
    problem = vectors(radius, 3)
    found = GradientSearch(generators=3, steps=150).find(problem, seed=1, progress=Silent())
    assert len(found.basis) >= 2
    assert degrees(problem.units.to_raw(found.basis), so(3)) < 2.0


def test_generators_without_a_symmetry_collapse():
    def rough(x: Tensor) -> Tensor:
        return torch.sin(3 * x[..., 0]) + torch.sin(2 * x[..., 1] + 1) + x[..., 0] * x[..., 1]

    found = GradientSearch(steps=100, learning_rate=3e-2).find(vectors(rough, 2), seed=0, progress=Silent())
    assert len(found.basis) == 0
    assert "collapsed" in found.notes[0]


def test_a_copy_is_left_out():
    search = GradientSearch(generators=2, weight=0.0, steps=100, learning_rate=3e-2)
    found = search.find(vectors(radius, 2), seed=0, progress=Silent())
    assert len(found.basis) == 1
    assert "repeated" in " ".join(found.notes)


def test_auto_counts_the_generators():
    search = GradientSearch(generators="auto", steps=80, starts=2)
    problem = vectors(radius, 2)
    found = search.find(problem, seed=0, progress=Silent())
    assert len(found.basis) == 1
    assert degrees(problem.units.to_raw(found.basis), so(2)) < 2.0


def test_charts_of_a_field_give_the_rotation():
    x = torch.nn.functional.avg_pool2d(torch.randn(24, 1, 30, 44, generator=stream(0, "fields")), 5, 1)

    def blur(x: Tensor) -> Tensor:
        line = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
        return torch.nn.functional.conv2d(x, (line[:, None] * line)[None, None].to(x), padding=2)

    atlas = Atlas.at([(12, 12), (12, 27)], in_radius=9, out_radius=7)
    problem, _ = prepare(x, function=blur, atlas=atlas, seed=0, progress=Silent())
    found = GradientSearch(steps=60, batch=6, learning_rate=3e-2).find(problem, seed=0, progress=Silent())
    assert degrees(found.basis, so(2)) < 8.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"generators": 0}, "`generators` must be"),
        ({"similarity": "dot"}, "`similarity` must be"),
        ({"loss": "hinge"}, "`loss` must be"),
        ({"steps": 0}, "`steps` must be"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(InputError, match=message):
        GradientSearch(**settings)


def test_too_few_generators_disagree_from_start_to_start():
    """The argument for the number of generators: in sl(2), one or two of three may be any."""
    x = torch.randn(300, 2, 2, generator=stream(0, "data"))
    area = lambda z: z[:, 0, 0] * z[:, 1, 1] - z[:, 0, 1] * z[:, 1, 0]  # noqa: E731
    problem, _ = prepare(x, function=area, seed=0, progress=Silent())
    search = GradientSearch(generators="auto", similarity="cosine", spread=0.5, steps=120, starts=2)
    found = search.find(problem, seed=0, progress=Silent())
    rule = [note for note in found.notes if note.startswith("k = ")]
    assert len(found.basis) == 3 and degrees(problem.units.to_raw(found.basis), sl(2)) < 5
    assert [("disagree" in note, "gave one algebra" in note) for note in rule[:3]] == [
        (True, False), (True, False), (False, True),
    ]  # fmt: skip
