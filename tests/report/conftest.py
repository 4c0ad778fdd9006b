"""A discovery made by hand, so that reports can be tested without a search."""

from dataclasses import replace

import pytest
import torch

from atlasd.algebra.known import orthogonal
from atlasd.discovery.frames import Frames, Picture, Track
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.result import ChartFinding, Direction, Discovery, Verdict


def _field_track(name: str, residual: float) -> Track:
    t = torch.linspace(-1.5, 1.5, 7, dtype=torch.float64)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    levels = torch.arange(7 * 12 * 12).reshape(7, 12, 12).remainder(255).to(torch.uint8)
    pictures = {k: Picture(levels, -1.0, 1.0) for k in ("input", "left", "right", "difference")}
    curves = (residual * t.abs().clamp(max=1.0), torch.ones(7).double(), torch.linspace(0.1, 1.0, 7).double())
    return Track(name, t, torch.matrix_exp(t[:, None, None] * turn), *curves, pictures=pictures)


def _vector_track() -> Track:
    elements = torch.stack([torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, -1.0]])]).double()
    points = {"input": torch.randn(2, 9, 2), "left": torch.randn(2, 9), "right": torch.randn(2, 9)}
    points["left"][1, 0] = float("nan")
    curves = (torch.tensor([0.0, float("nan")]), torch.ones(2), torch.ones(2))
    return Track("elements", torch.tensor([1.0, 2.0]), elements, *curves, points=points)


@pytest.fixture(scope="session")
def frames() -> Frames:
    tracks = (_field_track("generator 1", 0.01), _vector_track(), _field_track("contrast scaling", 0.9))
    field = Picture.of(torch.randn(24, 24, generator=torch.Generator().manual_seed(1)))
    return Frames(tracks, field, (96, 96), (14.0, 10.0), 0)


@pytest.fixture(scope="session")
def discovery(frames) -> Discovery:
    identity = Direction(0.0, 0.0, 0.0, 1.0, 1.0, "symmetry", "the identity", 0.2)
    good = Direction(0.031, 0.004, 0.039, 0.91, 0.98, "symmetry", "breaking at most 3.9%", 0.2, extent=1.0)
    mirror = replace(good, strength=0.0, lower=0.0, upper=0.025, extent=None)
    bad = Direction(0.82, 0.74, 1.2, 1.0, 0.6, "broken", "as far off as unrelated data [/] <b>bold</b>", 0.2)
    near = Direction(0.11, 0.1, 0.13, 0.9, 0.97, "approximate", "clearly more than the exact ones", 0.2, extent=1.0)
    nan = float("nan")
    unknown = Direction(nan, nan, nan, nan, 0.04, "cannot tell", "too few lie where data are", 0.2)
    rejected = (bad, near, unknown)
    return Discovery(
        group=orthogonal(2),
        verdict=Verdict(True, "One generator & one reflection hold.", (good,), (identity, mirror), rejected),
        charts=(
            ChartFinding((64.0, 19.0), 0.03, False, 0.98),
            ChartFinding((86.0, 41.0), 0.4, True, 0.97, "its own generator differs <i>"),
            ChartFinding((30.0, 80.0), float("nan"), False),
        ),
        spectrum=(0.0, 0.8, 1.2, 7.0),
        predictor=PredictorSummary("linear stencil", 0.97, 225, 0.4),
        seconds={"fit": 0.4, "search": 1.5},
        seed=3,
        curves={"loss": (1.0, 0.5, 0.01), "size": (0.1, 0.2, 0.2)},
        frames=frames,
    )


@pytest.fixture(scope="session")
def fields() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "input": torch.randn(1, 96, 96, generator=generator),
        "output": torch.randn(1, 96, 96, generator=generator),
        "radii": torch.tensor([14.0, 10.0]),
    }


@pytest.fixture(scope="session")
def plain(discovery) -> Discovery:
    """The same with little to draw."""
    return replace(discovery, charts=(), spectrum=(), curves={}, frames=None)
