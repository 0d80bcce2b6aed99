"""Speed of gcr_rl.order.project against quadratic-programming solvers, on one core.

    taskset -c 0 python benchmarks/isotonic.py

B = 64 nodes, 200 edges; ours in a vmapped batch of 16, the peers one problem at a time with
their matrices built beforehand; time per problem, setup included. *Easy* values follow the
order up to noise, *hard* values ignore it, *reversed* values contradict it.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import daqp
import jax
import numpy as np
import osqp
import piqp
import proxsuite
import scipy.sparse as sparse

from gcr_rl.order import Result, project
from gcr_rl.types import Comparisons

NODES, EDGES, BATCH = 64, 200, 16
RESULTS = Path(__file__).parent / "results"
PEERS = ("daqp", "piqp", "osqp", "proxqp")
OURS = ("gcr_rl float32", "gcr_rl float64")


def random_problem(rng, values_kind, margins, discounts):
    rank = rng.permutation(NODES)
    first, second = np.triu_indices(NODES, 1)
    pick = rng.choice(len(first), EDGES, replace=False)
    upper, lower = rank[first[pick]], rank[second[pick]]
    position = np.empty(NODES)
    position[rank] = np.arange(NODES) / NODES
    trend = {"easy": -4.0, "hard": 0.0, "reversed": 4.0}[values_kind]
    noise = 1.0 if values_kind == "hard" else 0.5
    values = trend * position + noise * rng.normal(size=NODES)
    margin = rng.uniform(0, 0.2, EDGES) if margins else np.zeros(EDGES)
    discount = rng.uniform(0.5, 1.0, EDGES) if discounts else np.ones(EDGES)
    return values, Comparisons(upper, lower, np.ones(EDGES), margin, discount, np.ones(EDGES, bool))


def peer_calls(values, order) -> dict[str, Callable[[], np.ndarray]]:
    """One closure per peer that sets up and solves min ½‖x − v‖² s.t. A x >= m."""
    rows = np.zeros((EDGES, NODES))
    rows[np.arange(EDGES), order.upper] = 1.0
    rows[np.arange(EDGES), order.lower] -= order.discount
    eye, target, margin = np.eye(NODES), -values, order.margin
    sparse_eye, sparse_rows = sparse.csc_matrix(eye), sparse.csc_matrix(rows)
    above, senses = np.full(EDGES, 1e30), np.zeros(EDGES, np.int32)

    def with_daqp():
        return daqp.solve(eye, target, rows, above, margin, senses)[0]

    def with_piqp():
        solver = piqp.SparseSolver()
        solver.setup(sparse_eye, target, None, None, sparse_rows, margin, None, None, None)
        solver.solve()
        return solver.result.x

    def with_osqp():
        solver = osqp.OSQP()
        solver.setup(
            sparse_eye, target, sparse_rows, margin, np.full(EDGES, np.inf),
            verbose=False, eps_abs=1e-5, eps_rel=1e-5,
        )  # fmt: skip
        return solver.solve().x

    def with_proxqp():
        solver = proxsuite.proxqp.dense.QP(NODES, 0, EDGES)
        solver.init(eye, target, None, None, rows, margin, None)
        solver.solve()
        return solver.results.x

    return {"daqp": with_daqp, "piqp": with_piqp, "osqp": with_osqp, "proxqp": with_proxqp}


def timed(call) -> np.ndarray:
    """Wall and processor time in µs, each the best of three runs in a row (warm caches)."""
    best = np.full(2, np.inf)
    for _ in range(3):
        wall, processor = time.perf_counter(), time.process_time()
        call()
        spent = time.perf_counter() - wall, time.process_time() - processor
        best = np.minimum(best, 1e6 * np.array(spent))
    return best


solve = jax.jit(jax.vmap(project))


def our_calls(problems):
    """Compiled calls on the whole batch, in both precisions, and their projections."""
    calls, found = {}, {}
    for name, wide in zip(OURS, (False, True), strict=True):
        dtype = np.float64 if wide else np.float32
        with jax.enable_x64(wide):
            batch = jax.tree.map(lambda *leaf: np.stack(leaf), *problems)
            batch = jax.tree.map(partial(_on_device, dtype=dtype), batch)
            found[name] = jax.block_until_ready(solve(*batch))
        calls[name] = partial(_run, wide, batch)
    return calls, found


def _on_device(leaf, dtype):
    return jax.numpy.asarray(leaf.astype(dtype if leaf.dtype.kind == "f" else leaf.dtype))


def _run(wide, batch):
    with jax.enable_x64(wide):
        return jax.block_until_ready(solve(*batch))


def measure(values_kind, margins, discounts, batches, rounds):
    """Mean over problems of the best of ``rounds``, all contestants interleaved."""
    rng = np.random.default_rng(0)
    times = {name: [] for name in (*OURS, *PEERS)}
    errors = dict.fromkeys(times, 0.0)
    violation = 0.0
    for _ in range(batches):
        problems = [random_problem(rng, values_kind, margins, discounts) for _ in range(BATCH)]
        ours, found = our_calls(problems)
        peers = [peer_calls(*problem) for problem in problems]
        exact = np.stack([peer["daqp"]() for peer in peers])
        best = {name: np.full((1 if name in OURS else BATCH, 2), np.inf) for name in times}
        for _ in range(rounds):
            for name, call in ours.items():
                best[name][0] = np.minimum(best[name][0], timed(call))
            for i, peer in enumerate(peers):
                for name, call in peer.items():
                    best[name][i] = np.minimum(best[name][i], timed(call))
        for name in times:
            times[name].append(best[name].sum(0) / BATCH)
        for name, projection in found.items():
            assert (np.asarray(projection.result) == Result.SUCCESS).all()
            violation = max(violation, float(np.max(projection.stats.max_violation)))
            errors[name] = max(errors[name], float(np.abs(projection.values - exact).max()))
        for name in PEERS:
            answers = np.stack([peer[name]() for peer in peers])
            errors[name] = max(errors[name], float(np.abs(answers - exact).max()))
    mean = {name: np.mean(values, 0) for name, values in times.items()}
    return {
        "values": values_kind,
        "margins": margins,
        "discounts": discounts,
        "wall_us": {name: round(float(pair[0]), 1) for name, pair in mean.items()},
        "processor_us": {name: round(float(pair[1]), 1) for name, pair in mean.items()},
        "max_difference_from_daqp": errors,
        "max_violation_of_ours": violation,
    }


def table(rows, clock) -> list[str]:
    names = (*OURS, *PEERS)
    lines = [f"| values | edges | {' | '.join(names)} | float32 | float64 |"]
    lines.append("|---" * (len(names) + 4) + "|")
    for row in rows:
        kind = " + ".join(n for n in ("margins", "discounts") if row[n]) or "plain"
        spent = row[clock]
        fastest = min(spent[name] for name in PEERS)
        ratios = [f"{fastest / spent[name]:.2f}" for name in OURS]
        cells = [f"{spent[name]:.0f}" for name in names]
        lines.append(f"| {row['values']} | {kind} | {' | '.join(cells + ratios)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS / "isotonic.json")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    load = [os.getloadavg()[0]]
    rows = []
    for kind in ("easy", "hard", "reversed"):
        for margins, discounts in ((False, False), (True, False), (True, True)):
            rows.append(measure(kind, margins, discounts, options.batches, options.rounds))
            print("\n".join(table(rows[-1:], "processor_us")[2:]), flush=True)
    load.append(os.getloadavg()[0])
    packages = ("jax", "jaxlib", "numpy", "daqp", "piqp", "osqp", "proxsuite")
    versions = {name: version(name) for name in packages}
    machine = f"{_processor()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    pinned = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    about = {"machine": machine, "pinned_to": pinned, "load": load, "versions": versions}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    errors = [max(row["max_difference_from_daqp"][name] for row in rows) for name in OURS]
    worst = max(row["max_violation_of_ours"] for row in rows)
    command = f"benchmarks/isotonic.py --batches {options.batches} --rounds {options.rounds}"
    text = [
        f"# Projection, µs per problem, B = {NODES}, |E| = {EDGES}, batch of {BATCH}",
        "",
        f"`taskset -c {pinned} python {command}` on {machine}, load average {load[0]:.1f} to "
        f"{load[1]:.1f}; {listed}. The last two columns are the fastest peer's time over ours "
        "(above 1: ours is faster). Largest difference from daqp's default answer: "
        f"{errors[0]:.0e} (float32), {errors[1]:.0e} (float64); largest violation of ours: "
        f"{worst:.0e}. On a loaded machine read processor time: a batch takes milliseconds, "
        "so it is preempted more often than one call of a peer.",
    ]
    for title, clock in (("Processor time", "processor_us"), ("Wall time", "wall_us")):
        text += ["", f"## {title}", "", *table(rows, clock)]
    options.json.with_suffix(".md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
