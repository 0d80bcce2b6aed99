"""A sample of benchmarks/certificate.py: every planted group, every trap and three tasks."""

import sys
from functools import lru_cache
from pathlib import Path

import pytest

from gcr_rl.envs.probes_symmetry import planted, traps

pytestmark = pytest.mark.slow
WITHIN = {
    "RotMirrorGrid": 3000,
    "CartPole": 3000,
    "ButtonPermutation": 8000,
    "ButtonPermutation, odd button": 8000,
}
SKIPPED = ("near-symmetry", "RotMirrorGrid, more seeds")
NAMES = [
    *WITHIN,
    "RotMirrorGrid, slip 0.15",
    *(f"group: {probe.name}" for probe in planted()),
    *(f"trap: {probe.name}" for probe in traps()),
]


@lru_cache
def benchmark():
    """The benchmark's own module and its cases; imported only where it is run."""
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
    import certificate

    return certificate, certificate.all_cases(5)


@pytest.mark.parametrize("name", NAMES)
def test_all_true_elements_are_certified_and_no_other_in_five_seeds(name):
    module, cases = benchmark()
    case = cases[name]
    summary = module.summarise(case, [module.judge(case, seed) for seed in range(2000, 2005)])
    assert summary["false"] == 0
    if case.truth:
        # without a single reward or end nothing is more than provisional, however true
        assert summary["complete_seeds"] == 5 - summary["without_events"] >= 3
        assert summary["accepted_seeds"] == 5
        assert summary["worst_first"] <= WITHIN.get(name, case.lengths[-1])
    if name == "RotMirrorGrid":
        assert summary["worst_accepted"] <= 1000


def test_every_case_of_the_benchmark_is_sampled():
    _, cases = benchmark()
    assert {name for name in cases if not name.startswith(SKIPPED)} == set(NAMES)
