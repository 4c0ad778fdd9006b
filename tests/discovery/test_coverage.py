"""Coverage: whether transformed inputs lie where data are."""

import torch

from atlasd.discovery.coverage import FieldCoverage
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
