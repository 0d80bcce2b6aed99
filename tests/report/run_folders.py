"""Run folders as training writes them, without training: curves of a known shape plus noise."""

import json
from pathlib import Path

import numpy as np

SQUARE = [("rotation by 90 degrees", [2, 3, 1, 0]), ("mirror left-right", [0, 1, 3, 2]),
          ("rotation by 180 degrees", [1, 0, 3, 2])]  # fmt: skip


def write_run(
    folder, task="Grid", method="ddqn", seeds=(0, 1, 2), steps=10_000, every=500,
    start=-200.0, end=-20.0, speed=3.0, noise=5.0, env=None, exact=False, episodes=4,
    curves=None, log=False, rate=8_000.0, symmetry=False, order=False, spread=0.0,
    **config,
):  # fmt: skip
    """A finished run whose return rises from ``start`` to ``end`` at ``speed``; ``spread`` is how
    much faster some seeds are."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    settings = {
        "task": task, "method": method, "seeds": list(seeds), "steps": steps,
        "env": env or {}, **config,
    }  # fmt: skip
    rows = []
    for step in range(0, steps + 1, every):
        for index, seed in enumerate(seeds):
            rng = np.random.default_rng([seed, step])
            pace = speed * (1 + spread * (seed % 5))
            mean = end + (start - end) * np.exp(-pace * step / steps)
            if curves is not None:
                mean = curves[index][step // every]
            returns = (mean + noise * rng.normal(size=episodes)).tolist()
            rows.append({
                "step": step, "seed": seed, "mean_return": float(np.mean(returns)),
                "exact_return": mean if exact else None,
                "bellman_residual": float(np.exp(-speed * step / steps) * rng.uniform(0.5, 1.5)),
                "returns": returns, "lengths": [1] * episodes,
            })  # fmt: skip
    summary = {"status": "finished", "steps": steps, "seeds": list(seeds)}
    if symmetry:
        summary["symmetry"] = {str(seed): group(found=seed % 4 != 3) for seed in seeds}
    provenance = {
        "command": f"gcr train {task} --method {method}", "commit": "0123456789abcdef",
        "versions": {}, "device": "cpu",
    }  # fmt: skip
    for name, content in (("config", settings), ("summary", summary), ("provenance", provenance)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    write_rows(folder / "evaluation.jsonl", rows)
    if log:
        write_rows(folder / "log.jsonl", log_rows(seeds, steps, every, rate, order))
    return folder


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def log_rows(seeds, steps, every, rate, order):
    """The first chunk fills the replay, the second compiles: neither is the method's speed."""
    for chunk, step in enumerate(range(every, steps + 1, every)):
        speed = (100 * rate, rate / 20)[chunk] if chunk < 2 else rate
        for seed in seeds:
            rng = np.random.default_rng([seed, step, 1])
            fading = float(np.exp(-3 * step / steps) * rng.uniform(0.7, 1.3))
            row = {"step": step, "seed": seed, "updates": max(0, step - every)}
            if chunk:
                row |= {"td_error_abs": fading, "loss": fading**2}
            if chunk and order:
                row |= {"order_violation": fading / 5, "order_violation_target": 0.0}
            wall = round(every * len(seeds) / speed, 4)
            yield row | {"wall_s": wall, "steps_per_s": speed}


def group(found=True):
    """What summary.json says of a seed's group."""
    if not found:
        return {"name": "trivial", "order": 1, "num_actions": 4, "elements": [], "orbits": []}
    elements = [
        {"element": number + 1, "name": name, "relabel": relabel, "status": "certified",
         "accepted_at": 1500, "certified_at": 1500, "statistics": {"support": 1.0},
         "residual": 0.0}
        for number, (name, relabel) in enumerate(SQUARE)
    ]  # fmt: skip
    return {"name": "D4", "order": 8, "num_actions": 4, "elements": elements, "orbits": [0, 1]}


def write_inspection(folder, nodes=9, seed=0):
    """The part of inspection.json that a Hasse diagram needs: a chain, a fork, lone slots."""
    covers = [[0, 1], [1, 2], [0, 3], [3, 4], [3, 2]]
    order = {
        "nodes": nodes, "states_named": False, "size": 8, "width": 5, "height": 3,
        "covers": covers, "labels": [str(node) for node in range(nodes)],
        "values": [1.0 - 0.1 * node for node in range(nodes)],
    }  # fmt: skip
    (folder / "inspection").mkdir()
    content = {"kind": "gcr-rl inspection", "drawn_seed": seed, "checkpoint": 8000, "order": order}
    (folder / "inspection" / "inspection.json").write_text(json.dumps(content))


METHODS = {
    "dqn": 1.6, "ddqn": 2.0, "gcr-hard": 7.0, "gcr-soft": 5.0, "sym-only": 5.5, "logic-only": 2.6,
    "no-relabel": 2.2, "paper-soft": 2.1, "paper-hard": 1.9,
}  # fmt: skip


def write_suite(root, tasks=("CartPole", "RotMirrorGrid"), methods=METHODS, seeds=8, **options):
    """A run per task and method: what a suite leaves behind."""
    folders = []
    for task in tasks:
        for method in methods:
            speed = METHODS.get(method, 3.0) * (1.3 if task == "CartPole" else 1.0)
            curve = {"start": 20.0, "end": 495.0, "noise": 12.0} if task == "CartPole" else {}
            mine = {"symmetry": method in ("gcr-hard", "sym-only"), "order": "gcr" in method}
            folders.append(write_run(
                root / f"{task}-{method}", task=task, method=method, seeds=tuple(range(seeds)),
                speed=speed, spread=0.1, rate=8_000.0 / (1 + 0.3 * len(folders)), log=True,
                **{**curve, **mine, **options},
            ))  # fmt: skip
    return folders
