"""Top tagging: settings, the count of shared entries, and the groups from the shared jets where they are there."""

import os
from pathlib import Path

import pytest
import torch

from atlasd.algebra.known import so
from atlasd.errors import DataError
from atlasd.runtime.progress import Silent
from atlasd.studies.config import parse_settings
from atlasd.studies.jets.run import TopTaggingConfig, run
from atlasd.studies.lorentz import conformal_lorentz, shared_pairs

SHARED = Path(os.environ.get("ATLASD_DATA") or "nowhere") / "jets_pythia.npz"
shared = pytest.mark.skipif(not SHARED.is_file(), reason="needs jets_pythia.npz in ATLASD_DATA")


def test_settings():
    assert parse_settings(TopTaggingConfig, ["similarity=cosine"]).search == "gradient"
    paper = parse_settings(TopTaggingConfig, ["preset=paper"])
    assert (paper.search, paper.predictor, paper.generators, paper.weight, paper.growth) == (
        "gradient", "mlp", 7, 0.1, 1.0,
    )  # fmt: skip


def test_shared_entries_are_counted():
    assert shared_pairs(so(1, 3).basis) == 0
    turned = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert shared_pairs(torch.einsum("ab,bij->aij", turned, so(1, 3).basis)) == 15
    assert conformal_lorentz().dimension == 7


def test_no_jets_is_one_clear_line(tmp_path):
    with pytest.raises(DataError, match="must be an HDF5 file, got nothing there"):
        run(TopTaggingConfig(file=str(tmp_path / "no.h5")), 0, Silent())


@shared
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_few_jets_never_give_a_wrong_group(seed):
    """Not even a part of the right one: that scaling holds at first order is no answer where boosts are in doubt."""
    found, extras = run(TopTaggingConfig(samples=1000, constituents=12), seed, Silent())
    if found.group.dimension:
        assert found.group.dimension == 7 and extras.metrics["angle_deg"] < 5
    else:
        assert found.group.components == 1 and found.verdict.reason.startswith("Cannot tell")


@shared
def test_shuffled_labels_give_nothing():
    found, _ = run(TopTaggingConfig(samples=1000, constituents=12, labels="shuffled"), 0, Silent())
    assert found.group.dimension == 0 and found.group.components == 1


@shared
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_lorentz_group_with_scaling_and_parity(seed):
    found, extras = run(TopTaggingConfig(), seed, Silent())
    assert extras.metrics["dimension"] == 7 and extras.metrics["algebra"] == "so(1,3)+R"
    assert extras.metrics["metric_cosine"] >= 0.9999
    assert found.group.components == 2 and float(torch.linalg.det(found.cosets[1])) < 0
    assert "Not testable: diag(-1, " in found.verdict.reason


@shared
def test_generators_are_counted_as_they_were_proposed():
    """The verdict brings what it keeps to a standard form, in which no two generators share an entry."""
    config = TopTaggingConfig(
        samples=300, constituents=8, search="gradient", similarity="cosine", batches=5, epochs=2, starts=4
    )
    found, extras = run(config, 0, Silent())
    assert extras.metrics["proposed"] == len(found.proposed)
    assert extras.metrics["shared_pairs"] == shared_pairs(found.proposed)
