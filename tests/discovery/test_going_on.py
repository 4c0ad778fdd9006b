"""A discovery that was stopped after any of its stages goes on to the same answer."""

import shutil

import pytest
import torch

import atlasd as ad
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.random import stream
from atlasd.runtime.stages import Stages, keeping, resuming
from atlasd.studies.heat.data import heat_fields, simulate_heat

WORDS = ["run", "fake"]


def vectors():
    x = torch.randn(240, 2, generator=stream(0, "going on"))
    y = (x.square().sum(-1) + 0.05 * torch.randn(240, generator=stream(1, "going on"))).float()
    return ad.discover(x, y, progress=False)


def fields():
    """Charts of which only some share a symmetry, and few samples, so that those that choose must not judge."""
    whole = heat_fields(60, generator=stream(0, "kills"))
    x, y = (z[..., ::2, ::2] for z in (whole, simulate_heat(whole)))
    centres = [(20, 20), (40, 40), (20, 40), (40, 20), (30, 30), (32, 20), (20, 32), (26, 38)]
    atlas = ad.Atlas.at(centres, in_radius=9, out_radius=5)
    return ad.discover(x, y, atlas=atlas, predictor=StencilPredictor(), cosets=False, progress=False)


def answer(found):
    return found.verdict, [chart.error for chart in found.charts], found.group.algebra.basis.tolist()


@pytest.mark.parametrize("discover", [vectors, pytest.param(fields, marks=pytest.mark.slow)])
def test_stopped_anywhere(discover, tmp_path, monkeypatch):
    put, copies = Stages.put, []

    def keep_a_copy(self, key, value):
        put(self, key, value)
        copies.append((key, shutil.copytree(self.directory.parent, tmp_path / f"cut{len(copies)}")))

    with monkeypatch.context() as patch:
        patch.setattr(Stages, "put", keep_a_copy)
        with keeping(tmp_path / "whole", WORDS, "1"):
            expected = answer(discover())
    names = [key.rsplit("/", 1)[-1] for key, _ in copies]
    assert "verdict.0" in names and (discover is vectors or "search of some.0" in names)
    for name, (_, directory) in zip(names, copies, strict=True):
        (directory / ".lock").unlink(missing_ok=True)
        with resuming(), keeping(directory, WORDS, "1"):
            assert answer(discover()) == expected, name
