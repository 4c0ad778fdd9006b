"""The same answer in process, in two processes and on Dask; charts that cannot be read are left out and named."""

import os
import signal
import threading
import time

import pytest
import torch

import atlasd as ad
from atlasd.data.samples import Samples
from atlasd.discovery.discover import discover
from atlasd.errors import AtlasdError
from atlasd.runtime.executor import working
from atlasd.runtime.pool import process_pool
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import draw_waves, laplacian, plane_waves

ATLAS = ad.Atlas.at([(6, 6), (6, 9), (6, 12), (9, 6), (9, 9), (9, 12)], in_radius=5, out_radius=3)


@pytest.fixture(scope="module")
def data():
    x = plane_waves(*draw_waves(24, stream(0, "workers")), size=18)
    return x, 20 * laplacian(x)


def find(data, executor=None):
    """Six charts, hence two blocks."""
    with working(executor):
        return discover(
            *data,
            atlas=ATLAS,
            predictor=ad.StencilPredictor(width=3),
            search=ad.SpectralSearch(samples=6, starts=4),
            cosets=False,
            seed=0,
            progress=False,
        )


def same(a, b):
    assert torch.equal(a.algebra.basis, b.algebra.basis) and torch.equal(a.cosets, b.cosets)
    assert torch.equal(a.chart_generators, b.chart_generators)
    assert a.spectrum == b.spectrum and str(a.verdict) == str(b.verdict)
    assert str(a.charts) == str(b.charts)
    return True


@pytest.fixture(scope="module")
def alone(data):
    return find(data)


def test_two_processes_give_the_same(data, alone):
    with process_pool(2) as pool:
        assert same(alone, find(data, pool))


def test_charts_that_fail_are_left_out(data, monkeypatch):
    read = Samples.inputs

    def torn(self, index):
        if any(chart.center == (6.0, 6.0) for chart in self.atlas.charts):
            raise OSError("chunk 7 is torn")
        return read(self, index)

    monkeypatch.setattr(Samples, "inputs", torn)
    found = find(data)
    lost = [k for k, chart in enumerate(found.charts) if "chunk 7 is torn" in chart.reason]
    assert lost == [0, 1, 2] and len(found.charts) == 6
    assert "charts 0, 1, 2 were left out: OSError: chunk 7 is torn" in found.verdict.reason
    assert found.chart_generators.shape[0] == 6 and bool(found.chart_generators[:3].isnan().all())
    monkeypatch.setattr(Samples, "inputs", lambda *_: 1 / 0)
    with pytest.raises(AtlasdError, match="failed 3 times: ZeroDivisionError"):
        find(data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kill", [False, True])
def test_dask_gives_the_same_also_when_a_worker_dies(data, alone, kill):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))

        def strike():
            time.sleep(3.0)
            os.kill(victim, signal.SIGKILL)

        if kill:
            threading.Thread(target=strike, daemon=True).start()
        assert same(alone, find(data, client.get_executor()))
        if kill:
            assert victim not in client.run(os.getpid).values()
