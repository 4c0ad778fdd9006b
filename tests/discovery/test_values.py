"""The search by values alone, and how far a generator is said to hold."""

import pytest
import torch

from atlasd.algebra.known_algebras import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.spectral import SpectralSearch
from atlasd.discovery.values import symmetric_frame
from atlasd.discovery.verdict import field_extent
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.progress import Silent

ATLAS = Atlas.at([(12, 12)], in_radius=10, out_radius=7)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_frame_is_orthonormal_and_holds_turns_and_scaling(size):
    frame = symmetric_frame(size)
    torch.testing.assert_close(frame @ frame.mT, torch.eye(size * size, dtype=torch.float64))
    assert (frame @ torch.eye(size, dtype=torch.float64).flatten()).abs().max() == pytest.approx(size**0.5)


def test_turns_are_found_by_values(exact, waves):
    problem = exact.problem_of(exact.blur, waves(40, (25, 25), length=8.0), atlas=ATLAS)
    search = SpectralSearch(derivatives=False, generators=1, samples=12, starts=4, sizes=(1.0,), judged=(0.3, 0.6))
    found = search.find(problem, seed=0, progress=Silent())
    assert exact.degrees(LieAlgebra(found.basis), so(2)) < 2 and found.sizes == (0.3, 0.6)


def test_nothing_is_found_by_values_where_nothing_is(exact, waves):
    problem = exact.problem_of(exact.generic, waves(40, (25, 25), length=8.0), atlas=ATLAS)
    search = SpectralSearch(derivatives=False, samples=12, starts=4, sizes=(1.0,))
    assert len(search.find(problem, seed=0, progress=Silent()).basis) == 0


def test_extents(exact, waves):
    ones = torch.ones(1, dtype=torch.float64)
    stretch = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    problem = exact.problem_of(exact.blur, waves(40, (25, 25), length=8.0), atlas=ATLAS)
    assert field_extent(problem, exact.turn, ones, (0.3, 1.0), 0.05, samples=8) == 1.0
    assert field_extent(problem, stretch, ones, (0.3, 1.0), 1e-6, samples=8) is None
