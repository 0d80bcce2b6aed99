import json

import numpy as np
import pytest


@pytest.fixture
def make_run(tmp_path):
    """A finished run folder with curves that rise from ``start`` to ``end`` at ``speed``."""

    def build(
        name="run", task="Grid", method="ddqn", seeds=(0, 1, 2), steps=10_000, every=500,
        start=-200.0, end=-20.0, speed=3.0, noise=5.0, env=None, exact=False, episodes=4,
        curves=None, **config,
    ):  # fmt: skip
        folder = tmp_path / name
        folder.mkdir(parents=True)
        settings = {
            "task": task, "method": method, "seeds": list(seeds), "steps": steps,
            "env": env or {}, **config,
        }  # fmt: skip
        rows = []
        for step in range(0, steps + 1, every):
            for index, seed in enumerate(seeds):
                rng = np.random.default_rng([seed, step])
                mean = end + (start - end) * np.exp(-speed * step / steps)
                if curves is not None:
                    mean = curves[index][step // every]
                returns = (mean + noise * rng.normal(size=episodes)).tolist()
                row = {
                    "step": step, "seed": seed, "returns": returns, "lengths": [1] * episodes,
                    "mean_return": float(np.mean(returns)),
                    "exact_return": mean if exact else None,
                }  # fmt: skip
                rows.append(json.dumps(row))
        (folder / "config.json").write_text(json.dumps(settings))
        (folder / "summary.json").write_text('{"status": "finished"}')
        command = f"gcr train {task} {method}"
        provenance = {"commit": "0123456789abcdef", "command": command, "versions": {}}
        (folder / "provenance.json").write_text(json.dumps(provenance))
        (folder / "evaluation.jsonl").write_text("\n".join(rows) + "\n")
        return folder

    return build
