"""Every guarantee holds in its quick form, and fails when its operator is broken."""

import json
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from gcr_rl.cli import main
from gcr_rl.errors import InputError
from gcr_rl.manifold import step
from gcr_rl.order import greedy_dag, project
from gcr_rl.symmetry import close_group
from gcr_rl.theory import GUARANTEES, Row, measure
from gcr_rl.theory.counterexamples import COUNTEREXAMPLES
from gcr_rl.theory.order import minimise_penalty, reachable
from gcr_rl.theory.symmetry import Automorphisms
from gcr_rl.theory.table import as_table


class Moved(NamedTuple):
    values: jnp.ndarray


def unprojected(values, comparisons):
    return Moved(values)


def stretched(values, comparisons):
    return Moved(1.5 * values)


def shifted(values, comparisons):
    return Moved(project(values, comparisons).values + 0.3)


def accept_all(upper, lower, weight, mask, nodes):
    return mask


def accept_half(upper, lower, weight, mask, nodes):
    return greedy_dag(upper, lower, weight, mask, nodes) & (weight > 0.5)


def unconstrained(values, slack, gradient, constraints, **options):
    moved, slack, stats = step(values, slack, gradient, constraints, **options)
    moved = values - options["step_size"] * gradient
    return moved, slack, stats._replace(contraction=jnp.ones(()))


def hesitant(values, slack, gradient, constraints, **options):
    options["step_size"] = 0.2 * options["step_size"]
    return step(values, slack, gradient, constraints, **options)


class Mislabelled(Automorphisms):
    def __init__(self, environment):
        super().__init__(environment)
        self.relabel = np.tile(np.arange(4), (len(self.relabel), 1))


class Nothing:
    def relabellings(self):
        return {}


def unclosed(transforms, permutations):
    closed = close_group(transforms, permutations)
    return closed._replace(transforms=transforms)


BROKEN = {
    "greedy-acyclic": {"dag": accept_all},
    "greedy-maximal": {"dag": accept_half},
    "penalty-violation": {"minimise": lambda values, *rest: values},
    "penalty-limit": {"operator": unprojected},
    "path-accumulation": {"operator": unprojected},
    "projection-nonexpansive": {"operator": stretched},
    "projection-variance": {"operator": stretched},
    "order-feasible": {"dag": accept_all},
    "tangent-feasible": {"operator": unconstrained},
    "normal-contraction": {"operator": unconstrained},
    "restricted-descent": {"operator": hesitant},
    "linear-rate": {"operator": hesitant},
    "spectral-radius": {"projector": np.diag([2.0] + [1.0] * 7)},
    "closure-residuals": {"operator": unclosed},
    "sample-amplification": {"average": lambda q, group: q},
    "optimum-equivariant": {"automorphisms": Mislabelled},
    "backup-commutes": {"automorphisms": Mislabelled},
    "fixed-point-equivariant": {"average": lambda q: q + 0.01},
    "group-identified": {"find": lambda *evidence: Nothing()},
    "oracle-symmetry": {"average": lambda q: q},
    "oracle-order": {"operator": unprojected},
    "order-never-hurts": {"operator": shifted},
    "residual-decrease": {"operator": stretched},
    "structural-consistency": {
        "estimate": lambda mdp, count, draw: draw.normal(size=mdp.successors.shape[:2])
    },
    "stability": {"variance": lambda coverage, penalty, steps: 1.0 + penalty},
    "bias-variance": {"operator": stretched},
    "structural-bias": {"operator": stretched},
}


@pytest.mark.parametrize("name", GUARANTEES)
def test_holds(name):
    row = GUARANTEES[name](True)
    assert row.name == name and row.label and row.what
    assert row.holds, row


@pytest.mark.parametrize("name", BROKEN)
def test_broken_operator_is_noticed(name):
    row = GUARANTEES[name](True, **BROKEN[name])
    assert not row.holds, row


def test_every_row_can_fail():
    assert set(BROKEN) == set(GUARANTEES)


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_counterexamples_break_what_is_claimed(name):
    found = COUNTEREXAMPLES[name]()
    assert np.isfinite(found.measured) and found.measured > found.claimed, found


def test_row_relations():
    row = Row("a", "b", "c", "at most", 1.0, 1.05, 0.1)
    assert row.holds and row.record()["holds"] is True
    assert not row._replace(measured=1.2).holds
    assert not row._replace(measured=float("nan")).holds
    text = json.dumps(row._replace(measured=np.float32("nan"), predicted=np.float64(1)).record())
    assert json.loads(text)["measured"] is None
    assert row._replace(relation="at least", measured=7.0).holds
    assert not row._replace(relation="at least", measured=0.5).holds
    assert not row._replace(relation="equal", measured=0.5).holds
    assert as_table([row]).row_count == 1


def test_command_writes_rows_and_fails_when_one_does_not_hold(tmp_path, monkeypatch, capsys):
    file = tmp_path / "rows.json"
    main(["theory", "--only", "spectral-radius", "--quick", "--json", str(file)])
    (row,) = json.loads(file.read_text())["guarantees"]
    assert row["name"] == "spectral-radius" and row["holds"]
    assert "spectral-radius" in capsys.readouterr().out
    failing = {"spectral-radius": lambda quick: Row("spectral-radius", "", "", "equal", 0, 1, 0)}
    monkeypatch.setattr("gcr_rl.theory.GUARANTEES", failing)
    with pytest.raises(SystemExit) as stop:
        main(["theory", "--quick", "True", "--json", str(file)])
    assert stop.value.code == 3 and "spectral-radius" in capsys.readouterr().err
    assert json.loads(file.read_text())["guarantees"][0]["holds"] is False


def test_only_one_and_unknown_names():
    assert [row.name for row in measure("spectral-radius", quick=True)] == ["spectral-radius"]
    with pytest.raises(InputError, match="spectral-radius"):
        list(measure("spectral-radios"))


def test_minimiser_of_the_penalty_is_stationary():
    draw = np.random.default_rng(0)
    values = draw.normal(size=6)
    upper, lower = np.array([0, 1, 2, 0]), np.array([1, 2, 3, 4])
    x = minimise_penalty(values, upper, lower, 7.0)

    def objective(x):
        short = np.maximum(0.1 + x[lower] - x[upper], 0.0)
        return np.mean((x - values) ** 2) + 7.0 * np.mean(short**2)

    best = objective(x)
    assert all(objective(x + 1e-3 * draw.normal(size=6)) > best for _ in range(50))


def test_reachable_on_a_path():
    paths = reachable(np.array([0, 1]), np.array([1, 2]), np.array([True, True]))
    assert paths[0, 2] and not paths[2, 0] and not paths.diagonal().any()
