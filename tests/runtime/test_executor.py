"""Tasks: the same results wherever they run, tried again where they fail, and named where they cannot be done."""

import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from atlasd.errors import InputError
from atlasd.runtime.executor import About, TaskFailed, Workers, current_workers, working
from atlasd.runtime.packing import Shared
from atlasd.runtime.pool import process_pool


def double(number):
    return 2 * number


def fail_until(path, number):
    """Fails until it has been tried `number` times; a file counts."""
    with open(path, "a") as handle:
        handle.write("x")
    if os.path.getsize(path) < number:
        raise OSError("not yet")
    return os.path.getsize(path)


def die_once(path):
    """Kills its process the first time."""
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(9)
    return os.getpid()


def opened(shared):
    return id(shared), shared.value


@pytest.fixture(scope="module")
def pool():
    with process_pool(1) as made:
        yield made


@pytest.mark.parametrize("where", ["here", "threads"])
def test_results_are_in_order(where):
    executor = ThreadPoolExecutor(2) if where == "threads" else None
    assert Workers(executor).map(double, [(3,), (1,), (2,)], ["a", "b", "c"]) == [6, 2, 4]
    assert Workers(executor).map(double, [], []) == []


@pytest.mark.parametrize("where", ["here", "threads"])
def test_what_fails_is_tried_again_but_not_for_ever(where, tmp_path):
    executor = ThreadPoolExecutor(1) if where == "threads" else None
    assert Workers(executor).map(fail_until, [(tmp_path / "a", 3)], ["it"]) == [3]
    with pytest.raises(TaskFailed, match="charts 5 to 9, shard 3 failed 3 times: OSError: not yet") as caught:
        Workers(executor).map(fail_until, [(tmp_path / "b", 4)], [About(range(5, 10), 3)])
    assert caught.value.about == About(range(5, 10), 3)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_errors_of_the_user_are_not_tried_again(tmp_path):
    calls = []

    def wrong():
        calls.append(1)
        raise InputError("`x` is wrong")

    with pytest.raises(InputError):
        Workers().map(wrong, [()], ["it"])
    assert len(calls) == 1


def test_a_broken_pool_is_replaced(pool, tmp_path):
    workers = Workers(process_pool(1))
    assert workers.map(die_once, [(str(tmp_path / "dead"),)], ["it"]) != [os.getpid()]
    assert workers.map(double, [(1,), (2,)], "ab") == [2, 4]
    workers.executor.shutdown()


def test_what_cannot_be_sent_is_done_here(pool, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cloudpickle", None)
    lock = __import__("threading").Lock()
    assert Workers(pool).map(lambda _: os.getpid(), [(lock,)], ["it"]) == [os.getpid()]


def test_shared_values_are_unpacked_once(pool):
    shared = Shared({"a": torch.ones(3)})
    first, second = Workers(pool).map(opened, [(shared,), (shared,)], "ab")
    assert first[0] == second[0] and torch.equal(first[1]["a"], torch.ones(3))


def test_workers_of_the_surroundings():
    assert current_workers().executor is None
    executor = ThreadPoolExecutor(1)
    with working(executor) as workers:
        assert current_workers() is workers
        with working(None) as inner:
            assert inner is workers
        made = workers.scratch()
        assert made.is_dir()
    assert current_workers().executor is None and not made.exists()


def test_one_thread_and_the_old_number_afterwards():
    torch.set_num_threads(2)
    try:
        assert Workers().map(torch.get_num_threads, [()], ["it"]) == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_other_things_are_no_executor():
    with pytest.raises(InputError, match=r"client.get_executor\(\)"):
        Workers("local")


class Counting(ThreadPoolExecutor):
    """Counts what is handed over."""

    handed = 0

    def submit(self, *arguments, **options):
        self.handed += 1
        return super().submit(*arguments, **options)


@pytest.mark.parametrize("tasks", [1, 2, 5, 8])
def test_quick_tasks_go_in_bundles(tasks):
    with Counting(2) as executor:
        found = Workers(executor).map(double, [(k,) for k in range(tasks)], list(range(tasks)), quick=True)
    assert found == [2 * k for k in range(tasks)]
    assert executor.handed == min(tasks, 2)


def test_of_a_bundle_only_what_fails_is_named(tmp_path):
    for k in (0, 2):
        (tmp_path / str(k)).write_text("xxxx")
    tasks = [(tmp_path / str(k), 5 if k == 1 else 2) for k in range(3)]
    names = [About(range(k, k + 1)) for k in range(3)]
    with ThreadPoolExecutor(1) as executor, pytest.raises(TaskFailed, match="chart 1 failed 3 times"):
        Workers(executor).map(fail_until, tasks, names, quick=True)
    tasks[1] = (tmp_path / "another", 2)
    with ThreadPoolExecutor(1) as executor:
        assert Workers(executor).map(fail_until, tasks, names, quick=True)[1] == 2


@pytest.mark.filterwarnings("ignore")
def test_on_dask_a_bundle_goes_to_the_same_worker_every_time():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        workers = Workers(client.get_executor())
        first, *others = (workers.map(os.getpid, [()] * 4, "abcd", quick=True) for _ in range(3))
        assert first[0] == first[1] != first[2] == first[3]
        assert all(other == first for other in others)
        address = next(a for a, pid in client.run(os.getpid).items() if pid == first[0])
        chosen = Workers(client.get_executor(workers=[address]))
        assert chosen.map(os.getpid, [()] * 4, "abcd", quick=True) == [first[0]] * 4
        os.kill(first[0], signal.SIGKILL)
        assert len(workers.map(os.getpid, [()] * 4, "abcd", quick=True)) == 4
