"""Processes side by side keep to cores of their own."""

import itertools
import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from gcr_rl.bench import cores, processes
from gcr_rl.bench.cores import keep_to, shares_of_cores
from gcr_rl.bench.processes import run_in_processes
from gcr_rl.bench.store import Store

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen on this system"
)


@pytest.fixture
def machine(monkeypatch):
    """Sets the cores of this process and the plugins of JAX, as the module sees them."""

    def build(count, plugins=(), platforms=None):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(3, 3 + count)))
        monkeypatch.setattr(cores, "entry_points", lambda group: plugins)
        if platforms is None:
            monkeypatch.delenv("JAX_PLATFORMS", raising=False)
        else:
            monkeypatch.setenv("JAX_PLATFORMS", platforms)

    return build


@pytest.mark.parametrize(
    ("there", "asked", "shares"),
    [
        (2, 2, [{3}, {4}]),
        (5, 2, [{3, 4}, {5, 6}]),
        (4, 3, [{3}, {4}, {5}]),
        (4, 1, [set()]),  # alone: as it is
        (2, 3, [set()] * 3),  # fewer cores than processes
    ],
)
def test_shares_are_disjoint_and_of_one_size(machine, there, asked, shares):
    machine(there)
    assert shares_of_cores(asked) == shares


PLUGIN = EntryPoint("cuda", "jax_plugins.cuda", "jax_plugins")


@pytest.mark.parametrize(
    ("plugins", "platforms", "shared"),
    [
        ((PLUGIN,), None, True),
        ((PLUGIN,), "cpu", False),
        ((PLUGIN,), "cuda,cpu", True),
        ((), "cuda", True),
        ((), None, False),
    ],
)
def test_where_an_accelerator_does_the_work_all_cores_are_shared(
    machine, plugins, platforms, shared
):
    machine(2, plugins, platforms)
    assert (shares_of_cores(2) == [set(), set()]) == shared


def test_a_process_keeps_to_its_cores():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    first = min(os.sched_getaffinity(0))
    keep_to(process.pid, ())
    assert os.sched_getaffinity(process.pid) == os.sched_getaffinity(0)
    keep_to(process.pid, {first})
    assert os.sched_getaffinity(process.pid) == {first}
    process.communicate(b"\n")
    keep_to(process.pid, {first})  # it has ended: nothing to do


class Hired:
    """A worker that has done every job at once."""

    hired = itertools.count()

    def __init__(self, store):
        self.pid = next(self.hired)

    def run(self, job, command, display):
        return {"event": "end", "result": "finished", "reason": None}

    def dismiss(self):
        pass


class Silent:
    """A display that shows nothing."""

    def end(self, job, result, reason):
        pass


def test_every_worker_is_told_its_share(monkeypatch, tmp_path):
    told = {}
    monkeypatch.setattr(processes, "Worker", Hired)
    monkeypatch.setattr(processes, "shares_of_cores", lambda count: [{7 + i} for i in range(count)])
    monkeypatch.setattr(processes, "keep_to", told.__setitem__)
    run_in_processes(Store(tmp_path), list(range(40)), str, Silent(), 2)
    assert sorted(told.values(), key=min) in ([{7}, {8}], [{7}], [{8}])  # one may have done all
    assert len(told) == len(set(map(frozenset, told.values())))
