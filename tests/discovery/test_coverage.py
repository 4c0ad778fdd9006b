"""Coverage: whether transformed inputs lie where data are."""

import torch

from atlasd.discovery.coverage import FieldCoverage, VectorCoverage
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import draw_waves, plane_waves


def waves(count: int, seed: int, size: int) -> torch.Tensor:
    return plane_waves(*draw_waves(count, stream(seed, "waves")), size)


def test_wider_patches_are_looked_at_in_the_middle_only():
    """Charts whose maps reach less far are compared by the same middle."""
    coverage = FieldCoverage.of(waves(400, 0, 15))
    fresh = waves(100, 1, 21)
    assert torch.equal(coverage(fresh), coverage(fresh[..., 3:-3, 3:-3]))


def test_data_are_covered_and_noise_is_not():
    coverage = FieldCoverage.of(waves(400, 0, 15))
    assert float(coverage(waves(200, 1, 15)).double().mean()) > 0.8
    noise = torch.randn(200, 1, 15, 15, generator=stream(0, "noise"))
    assert not bool(coverage(noise).any())


def test_only_what_is_beyond_accident_counts_as_worse():
    """Noise of equal size everywhere is no difference, wherever samples are taken; errors that are larger there are."""
    x = torch.randn(800, 2, generator=stream(0, "points"), dtype=torch.float64)
    noise = torch.randn(800, 1, generator=stream(0, "errors"), dtype=torch.float64)
    here = torch.arange(800)
    near = x.norm(dim=1) < 0.5
    there = near.nonzero().flatten()[torch.randint(int(near.sum()), (1, 800), generator=stream(0, "there"))]
    shifts = []
    for larger in (1.0, 2.0, 4.0):
        errors = torch.where(near[:, None], larger * noise, noise)
        shifts.append(float(VectorCoverage(x, errors).worse(there, here, torch.ones(1, 800).double()).mean()))
    assert shifts[0] == 0 and 1 < shifts[1] < 3 and 7 < shifts[2] < 15
