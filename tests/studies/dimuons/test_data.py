"""Dimuons: the events are whole, small and attributed."""

from importlib.resources import files

import pytest
import torch

from atlasd.errors import InputError
from atlasd.studies.dimuons.data import load_dimuons


def test_mass_is_that_of_the_momenta():
    events = load_dimuons()
    assert len(events) == 30_370 and events.momenta.dtype == torch.float32
    p = events.momenta.double().sum(1)
    mass = (p[:, 0].square() - p[:, 1:].square().sum(-1)).sqrt()
    assert float((mass / events.mass - 1).abs().max()) < 2e-3
    assert float((mass / events.mass - 1).abs().median()) < 1e-5
    assert float(events.mass.min()) > 9 and float(events.mass.max()) < 120
    assert set(events.charge.unique().tolist()) == {-1, 1}


def test_both_tables_are_in_every_part():
    few = load_dimuons(500)
    assert 0.2 < float((few.mass > 60).double().mean()) < 0.5
    assert torch.equal(few.mass, load_dimuons().mass[:500])
    assert torch.equal(few.transverse, few.momenta[..., 1:3].norm(dim=-1).sum(-1))


def test_packed_small_and_with_its_licence():
    room = files("atlasd.studies.dimuons")
    assert len(room.joinpath("dimuons.npz").read_bytes()) <= 1_500_000
    assert "CC BY 4.0" in room.joinpath("dimuons.md").read_text()


def test_samples_must_be_positive():
    with pytest.raises(InputError, match="`samples` must be positive, got 0"):
        load_dimuons(0)
