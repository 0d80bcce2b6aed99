"""A run inspected: what is drawn is what its updates compute; errors are one line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command import gcr
from hypothesis import given
from hypothesis import strategies as st
from planted import SETTINGS

from gcr_rl.agents.noise import Noise
from gcr_rl.envs.dihedral import MOVES
from gcr_rl.inspection import inspect_run
from gcr_rl.inspection.grid import ValueMap, grid_of
from gcr_rl.inspection.pictures import encoded, hasse_figure
from gcr_rl.inspection.slot_order import (
    SlotOrder,
    bounds,
    draw,
    interval_comparisons,
    nudges,
    slot_order,
    state_names,
)
from gcr_rl.inspection.snapshot import read_snapshot, states_compared, value_variance
from gcr_rl.order import Poset
from gcr_rl.order.dag import dag_loss, greedy_dag_full
from gcr_rl.presets import preset
from gcr_rl.training import load, train
from gcr_rl.training.progress import Silent

# Left before the first update, which then need not be compiled: an unfinished run.
UNTRAINED = SETTINGS | {"seeds": (3,), "evaluation.every": 500, "replay.learning_starts": 1_000}


class Leave(Silent):
    def update(self, step, mean_return, loss):
        if step == 500:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(preset("Probe-D4", "gcr-hard", SETTINGS), tmp_path_factory.mktemp("run") / "gcr")


def unfinished(folder, method):
    with pytest.raises(KeyboardInterrupt):
        train(preset("Probe-D4", method, UNTRAINED), folder / method, reporter=Leave())
    return folder / method


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return unfinished(tmp_path_factory.mktemp("run"), "ddqn")


@pytest.fixture(scope="module")
def latent(tmp_path_factory):
    return unfinished(tmp_path_factory.mktemp("run"), "paper-soft")


@pytest.fixture(scope="module")
def found(trained):
    return inspect_run(trained, seed=1)


def logged_loss(snapshot, segments):
    """What an update on these segments would log."""
    state = snapshot.agent_state
    loss = jax.jit(snapshot.agent.objective.loss, static_argnums=5)
    return loss(state.params, state.known, segments, None, jnp.int32(0), snapshot.level)[1][0]


def test_group_order_and_values_of_a_seed_are_found(found):
    assert found.symmetry["name"] == "D4" and len(found.symmetry["elements"]) == 7
    since = {element["accepted_at"] for element in found.symmetry["elements"]}
    assert since <= {500, 1_000, 1_500, 2_000}
    assert all(element["statistics"] for element in found.symmetry["elements"])
    assert found.order["states_named"] and found.order["edges_refused"] == 0
    assert found.values["cells"] == 24
    assert found.remarks == []
    names = {f"{part}-seed1.{kind}" for part in ("group", "order", "values")
             for kind in ("png", "svg")}  # fmt: skip
    assert set(found.images) == names
    for name, content in found.images.items():
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")
    data = json.loads(json.dumps(found.data(), allow_nan=False))
    assert data["per_seed"]["1"]["symmetry_in_force"]["last"] > 0
    moved = data["symmetry_changes"]["1"]["symmetry_in_force"]
    assert moved and min(one["step"] for one in moved) > min(since)


def test_the_bounds_are_those_of_an_update(trained):
    snapshot = read_snapshot(trained)
    segments = draw(snapshot, 16)
    observation = jax.vmap(snapshot.decode)(segments.steps.observation[:, 0])
    taken = jnp.take_along_axis(
        snapshot.q_values(observation), segments.steps.action[:, :1], axis=1
    )[:, 0]
    bound = bounds(snapshot, segments)
    metrics = logged_loss(snapshot, segments)
    expected = jnp.mean(jnp.maximum(bound - taken, 0.0))
    np.testing.assert_allclose(metrics["order_violation"], expected, rtol=1e-4, atol=1e-6)
    largest = jnp.max(jnp.maximum(bound - taken, 0.0))
    assert largest > 0
    np.testing.assert_allclose(metrics["order_violation_network"], largest, rtol=1e-4, atol=1e-6)


def test_the_nudges_are_those_of_an_update(latent):
    snapshot = read_snapshot(latent)
    noise = Noise(*(jnp.float32(number) for number in (0.0, 0.0, 0.4, 0.02, 1.0)))
    hopeful = jax.tree.map(lambda leaf: leaf + 0.1, snapshot.agent_state.target)  # y > Q
    state = snapshot.agent_state._replace(noise=noise, target=hopeful)
    snapshot = replace(snapshot, agent_state=state)
    segments = draw(snapshot, 16)
    observation = jax.vmap(snapshot.decode)(segments.steps.observation[:, 0])
    q = snapshot.q_values(observation)
    taken = jnp.take_along_axis(q, segments.steps.action[:, :1], axis=1)[:, 0]
    comparisons = nudges(snapshot, segments, taken)
    dag = greedy_dag_full(
        comparisons.upper, comparisons.lower, comparisons.weight, comparisons.mask, 16
    )
    assert len(np.unique(comparisons.weight)) > 5  # else any order would do
    metrics = logged_loss(snapshot, segments)
    np.testing.assert_allclose(
        metrics["dag_loss"], dag_loss(comparisons.weight, dag.accepted), rtol=1e-4
    )
    assert int(comparisons.mask.sum()) == int(metrics["edges_proposed"]) > 0
    assert int(dag.accepted.sum()) == int(metrics["edges_kept"])
    assert int(dag.refused.sum()) == int(metrics["edges_refused"])


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=7))
def test_the_interval_order_holds_for_the_aligned_values(pairs):
    values, bound = np.array(pairs, float).T
    aligned = np.maximum(values, bound)
    comparisons = interval_comparisons(values, bound)
    n = len(values)
    edges = np.stack([comparisons.upper, comparisons.lower], axis=1)[np.asarray(comparisons.mask)]
    poset = Poset.from_edges(n, edges)  # refuses cycles
    above = np.array([[i != j and bound[i] > aligned[j] for j in range(n)] for i in range(n)])
    np.testing.assert_array_equal(poset.closure, above)


def test_slots_are_drawn_where_states_have_no_names(trained, monkeypatch):
    from gcr_rl.inspection import slot_order as module

    snapshot = read_snapshot(trained)
    monkeypatch.setattr(module, "MOST_NAMED_STATES", 3)
    order = slot_order(snapshot, slots=16)
    assert order.labels == [str(i) for i in range(16)] and not order.named
    for upper, lower in order.poset.hasse():
        assert order.poset.reaches(int(upper), int(lower))
    assert order.kept == order.proposed == order.poset.size


@pytest.mark.parametrize("nodes", [1, 11])
@pytest.mark.filterwarnings("error")
def test_an_order_without_relations_can_be_drawn(nodes):
    names = [str(node) for node in range(nodes)]
    order = SlotOrder(Poset.antichain(nodes), names, np.arange(float(nodes)), True, 0, 0, 0)
    assert encoded(hasse_figure(order, "nothing\ncompared"))["png"].startswith(b"\x89PNG")


def test_states_are_named_by_cell_or_number():
    assert state_names(preset("Probe-D4"))[7] == "1,2"
    assert state_names(preset("NoisyRPSChain"))[12] == "12"
    assert state_names(preset("RotMirrorGrid")) is None
    assert state_names(preset("CartPole")) is None


@pytest.mark.parametrize("task", ["RotMirrorGrid", "Probe-C4", "Probe-NoSymmetry"])
def test_a_grid_is_one_orientation_and_its_arrows_are_moves(task):
    grid = grid_of(preset(task))
    rows, columns = grid.walls.shape
    assert len(np.unique(grid.cells)) == len(grid.cells) == rows * columns - grid.walls.sum()
    assert grid.ends.sum() == 1 and not grid.walls.ravel()[grid.cells].any()
    cell_of = dict(zip(grid.states.tolist(), grid.cells.tolist(), strict=True))
    successors = np.asarray(grid.mdp.successors)[:, :, 0]
    for state in grid.states[~grid.ends]:
        for action, (down, right) in enumerate(MOVES):
            moved = cell_of[int(successors[state, action])] - cell_of[int(state)]
            blocked = moved == 0 or task == "Probe-C4"  # a blocked move slides there
            assert moved == down * columns + right or blocked


def test_other_tasks_have_no_grid():
    assert all(grid_of(preset(task)) is None for task in ("CartPole", "NoisyRPSChain"))


def test_optimal_values_are_right_everywhere_and_their_opposite_is_not():
    grid = grid_of(preset("Probe-D4"))
    from gcr_rl.envs.finite import optimal_q

    optimal = np.asarray(optimal_q(grid.mdp, 0.99))[grid.states]
    good = ValueMap(grid, optimal, optimal).data()
    assert good["greedy_action_optimal"] == 1.0 and good["largest_value_error"] == 0.0
    assert ValueMap(grid, -optimal, optimal).data()["greedy_action_optimal"] == 0.0
    assert ValueMap(grid, optimal, optimal).best[0].sum() == 2  # a corner has two ways


def test_the_value_variance_is_that_of_the_kept_agents(trained, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    for path in copy.glob("checkpoints/step-*"):
        if int(path.name[5:17]) < 1_500:
            path.unlink()
    variance = value_variance(read_snapshot(copy))
    assert variance["checkpoints"] == [1_500, 2_000] and variance["states"] == 25
    states, values = np.asarray(states_compared(read_snapshot(copy))), []
    for _ in range(2):
        run = load(copy)
        q = jax.vmap(lambda o, run=run: run.q_values(o))(states)
        values.append(np.asarray(q).max(axis=1))
        for path in copy.glob("checkpoints/step-*2000.*"):
            path.unlink()
    expected = np.stack(values).var(axis=0, ddof=1).mean()
    assert expected > 0
    np.testing.assert_allclose(variance["variance"], expected, rtol=1e-4)


def test_a_method_without_symmetry_and_order_shows_what_there_is(plain, capsys, tmp_path):
    out = tmp_path / "out"
    code, text, _ = gcr(capsys, "inspect", plain, "--out", out)
    assert code == 0 and "unfinished, checkpoint at step 500 of 2,000" in text
    assert "bellman_residual" in text and "order_violation" not in text
    assert "no group: ddqn looks for no symmetry" in text and "no order: ddqn" in text
    assert {path.name for path in out.iterdir()} == {
        "inspection.json", "values-seed3.png", "values-seed3.svg",
    }  # fmt: skip


@pytest.mark.slow
def test_the_latent_bank_is_drawn_as_soft_permutations(latent):
    found = inspect_run(latent)
    soft = np.array(found.symmetry["relabellings"])
    np.testing.assert_allclose(soft.sum(axis=2), 1.0, atol=1e-5)
    assert found.images["group-seed3.png"].startswith(b"\x89PNG")
    assert found.order["edges_kept"] + found.order["edges_refused"] == found.order["edges_proposed"]


def test_the_command_prints_and_says_where_its_files_are(trained, capsys, tmp_path):
    out, numbers = tmp_path / "out", tmp_path / "numbers.json"
    words = ("inspect", trained, "--out", out, "--json", numbers)
    code, text, _ = gcr(capsys, *words)
    assert code == 0 and "mean over 2 seeds" in text and "last row of each seed" in text
    assert "group D4 of order 8" in text and "edges_refused" in text and "td_loss" in text
    files = json.loads(numbers.read_text())["files"]
    assert all(file in text and Path(file).stat().st_size for file in files)
    pictures = {Path(file): Path(file).read_bytes() for file in files}
    code, text, _ = gcr(capsys, *words, "--seed", "0")  # over its own files, to the same bytes
    assert code == 0 and "mean over 2 seeds" not in text
    assert all(path.read_bytes() == content for path, content in pictures.items())
    assert sorted(path.name for path in trained.iterdir()) == [
        "checkpoints", "config.json", "evaluation.jsonl", "lock", "log.jsonl",
        "provenance.json", "summary.json",
    ]  # fmt: skip


def cut_log(run):
    (run / "log.jsonl").write_text((run / "log.jsonl").read_text()[:-20])


def no_log(run):
    (run / "log.jsonl").unlink()


def broken_checkpoints(run):
    for path in run.glob("checkpoints/*.safetensors"):
        path.write_bytes(path.read_bytes()[:100])


def foreign_rows(run):
    (run / "evaluation.jsonl").write_text('{"a": 1}\n')


@pytest.mark.parametrize("damage", [cut_log, no_log, broken_checkpoints, foreign_rows])
def test_a_damaged_run_is_one_line_and_writes_nothing(plain, capsys, tmp_path, damage):
    shutil.copytree(plain, tmp_path / "run")
    damage(tmp_path / "run")
    code, _, error = gcr(capsys, "inspect", tmp_path / "run", "--out", tmp_path / "out")
    assert code == 2 and error.startswith("gcr: ") and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_wrong_words_are_one_line(plain, capsys, tmp_path):
    for words, told in (
        ((tmp_path / "nothing",), "the folder of a run"),
        ((plain, "--seed", "7"), "one of this run's seeds [3]"),
    ):
        code, _, error = gcr(capsys, "inspect", *words, "--out", tmp_path / "out")
        assert code == 2 and told in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_somebody_elses_files_are_left_alone(plain, capsys, tmp_path):
    for name in ("inspection.json", "values-seed3.png"):
        out = tmp_path / name.replace(".", "-")
        out.mkdir()
        (out / name).write_text("{}")
        code, _, error = gcr(capsys, "inspect", plain, "--out", out)
        assert code == 2 and name in error
        assert [(path.name, path.read_text()) for path in out.iterdir()] == [(name, "{}")]


def test_a_damaged_newest_checkpoint_is_passed_over_and_said(plain, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(plain, copy)
    newest = max(copy.glob("checkpoints/*.safetensors"))
    newest.write_bytes(b"nothing")
    found = inspect_run(copy)
    assert found.snapshot.step == 0 and "passed over" in found.remarks[0]
    assert found.value_variance is None
