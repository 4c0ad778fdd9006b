"""A discovery made by hand, so that reports can be tested without a search."""

from dataclasses import replace

import pytest
import torch

from atlasd.algebra.known_groups import orthogonal
from atlasd.discovery.result import ChartFinding, Direction, Discovery, PredictorSummary, Verdict


@pytest.fixture(scope="session")
def discovery() -> Discovery:
    good = Direction(0.004, 0.006, 1.3, 0.05, "symmetry", "error 0.004 is below the tolerance", extent=1.0)
    bad = Direction(1.02, 1.2, 1.1, 0.05, "broken", "as far off as unrelated data [/] <b>bold</b>")
    return Discovery(
        group=orthogonal(2),
        verdict=Verdict(True, "One generator & one reflection hold.", (good,), (good, good), (bad,)),
        charts=(
            ChartFinding((64.0, 19.0), 0.003, False, 0.98),
            ChartFinding((86.0, 41.0), 0.4, True, 0.97, "its own generator differs <i>"),
            ChartFinding((30.0, 80.0), float("nan"), False),
        ),
        spectrum=(0.0, 0.8, 1.2, 7.0),
        predictor=PredictorSummary("linear stencil", 0.97, 225, 0.4),
        seconds={"fit": 0.4, "search": 1.5},
        seed=3,
        curves={"loss": (1.0, 0.5, 0.01), "size": (0.1, 0.2, 0.2)},
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
    return replace(discovery, charts=(), spectrum=(), curves={})
