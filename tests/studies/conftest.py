"""A discovery made by hand, so that recording can be tested without a search."""

import sys
from dataclasses import dataclass, replace
from types import ModuleType

import pytest
import torch

from atlasd import studies
from atlasd.algebra.known import orthogonal
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.result import ChartFinding, Direction, Discovery, Verdict
from atlasd.studies.config import Config, option
from atlasd.studies.record import Extras


@pytest.fixture
def discovery() -> Discovery:
    good = Direction(0.004, 0.0, 0.006, 1.0, 0.9, "symmetry", "breaking at most 0.6%", 0.2)
    return Discovery(
        group=orthogonal(2),
        verdict=Verdict(True, "One generator and one reflection hold.", (good,), (good, good)),
        charts=(ChartFinding((), 0.003, False, 0.98),),
        spectrum=(),
        predictor=PredictorSummary("linear stencil", 0.97, 225, 0.4),
        seconds={"fit": 0.4, "search": 1.5},
    )


@pytest.fixture
def fields() -> dict[str, torch.Tensor]:
    x, y = torch.randn(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    return {"input": x, "output": y, "radii": torch.tensor([3.0, 2.0])}


@pytest.fixture
def fake(monkeypatch, discovery, fields):
    """An experiment that takes no time: its module, to change what `run` does."""
    module = ModuleType("fake_experiment")

    @dataclass(frozen=True, kw_only=True)
    class Settings(Config):
        samples: int = option(10, "how many", least=1)
        label: str = option("plain", "a text")
        flag: bool = option(True, "a switch")

    def run(config, seed, progress):
        for _ in progress.track(range(3), "working"):
            pass
        progress.say("half way")
        return replace(discovery, seed=seed), Extras({"angle_deg": 0.5}, {"angle_deg": 1.67}, fields)

    module.CONFIG, module.run = Settings, run
    monkeypatch.setitem(sys.modules, module.__name__, module)
    known = (*studies.EXPERIMENTS, studies.Experiment("fake", "for tests", module.__name__))
    monkeypatch.setattr(studies, "EXPERIMENTS", known)
    return module


@pytest.fixture
def recorded(monkeypatch, discovery):
    """Puts a `discover` that only notes what it was asked into a study; gives those notes."""

    def record(study):
        calls = {}

        def pretend(x, y, **options):
            calls.update(x=x, y=y, first=x[:8], **options)
            return discovery

        monkeypatch.setattr(study, "discover", pretend)
        return calls

    return record
