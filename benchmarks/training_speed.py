"""Environment steps per second of DQN on CartPole, beside stable-baselines3, on one core.

Same settings for both: one environment, MLP 2x64, batch 64, one update per step, replay of
10,000, target copied every 500 updates, Adam, Huber loss. Steady state: compilation and
warm-up are not timed. Peers and ours alternate in one run, so that noise meets both; the
figure is the ratio of the medians, by processor time and by wall time (on a machine that
others use, the first says what the programs cost and the second what the moment was like).

    python benchmarks/training_speed.py [--quick]
"""

import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp

from gcr_rl.config import Config
from gcr_rl.training.runner import build_program

RESULTS = Path(__file__).parent / "results" / "training_speed.json"
SETTINGS = {
    "steps": 1_000_000,
    "exploration.start": 0.1,
    "exploration.end": 0.1,
    "value.n_step": 1,
    "value.target_period": 500,
}


class Ours:
    """Our in-graph loop, all seeds in one program."""

    def __init__(self, method: str, seeds: int, capacity: int = 10_000) -> None:
        own = {"seeds": tuple(range(seeds)), "value.double": method == "ddqn"}
        config = Config("CartPole", method).replace(
            {**SETTINGS, **own, "replay.capacity": capacity}
        )
        self.program, self.seeds, self.now = build_program(config), seeds, 2_000
        state = self.program.init(jnp.arange(seeds))
        state, _ = self.program.chunk(state, 0, 1_000, False)
        self.state, _ = self.program.chunk(state, 1_000, 1_000, True)
        jax.block_until_ready(self.state)

    def step(self) -> int:
        """Take some steps; how many, all seeds together."""
        self.state, _ = self.program.chunk(self.state, self.now, 500, True)
        jax.block_until_ready(self.state)
        self.now += 500
        return 500 * self.seeds


class StableBaselines3:
    """stable-baselines3's DQN with the same settings."""

    def __init__(self) -> None:
        import gymnasium
        import torch
        from stable_baselines3 import DQN

        torch.set_num_threads(1)
        self.model = DQN(
            "MlpPolicy",
            gymnasium.make("CartPole-v1"),
            learning_rate=1e-3,
            buffer_size=10_000,
            learning_starts=100,
            batch_size=64,
            train_freq=1,
            gradient_steps=1,
            target_update_interval=500,
            exploration_initial_eps=0.1,
            exploration_final_eps=0.1,
            policy_kwargs={"net_arch": [64, 64]},
            device="cpu",
        )
        self.model.learn(500)

    def step(self) -> int:
        """Take some steps; how many."""
        self.model.learn(200, reset_num_timesteps=False)
        return 200


def speed(contender: "Ours | StableBaselines3", seconds: float) -> tuple[float, float]:
    """Steps per second of processor time and of wall time."""
    steps, wall, processor = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        steps += contender.step()
    return steps / (time.process_time() - processor), steps / (time.perf_counter() - wall)


def main() -> None:
    quick = "--quick" in sys.argv
    rounds, seconds = (2, 1.0) if quick else (7, 2.0)
    contenders = {
        "stable-baselines3 dqn": StableBaselines3(),
        "gcr-rl dqn, 1 seed": Ours("dqn", 1),
        "gcr-rl ddqn, 1 seed": Ours("ddqn", 1),
        "gcr-rl dqn, 16 seeds": Ours("dqn", 16),
        "gcr-rl ddqn, 16 seeds": Ours("ddqn", 16),
        "gcr-rl dqn, 16 seeds, replay of 100,000": Ours("dqn", 16, 100_000),
    }
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    loads = []
    for _ in range(rounds):
        for name, contender in contenders.items():
            samples[name].append(speed(contender, seconds))
        loads.append(os.getloadavg()[0])
    medians = {
        name: [statistics.median(column) for column in zip(*values, strict=True)]
        for name, values in samples.items()
    }
    base = medians["stable-baselines3 dqn"]
    rows = []
    for name, (processor, wall) in medians.items():
        ratios = {"processor": processor / base[0], "wall": wall / base[1]}
        rows.append({"name": name, "steps_per_s": samples[name], "ratio": ratios})
        print(
            f"{name:<40} {processor:>8,.0f} steps per processor second"
            f"   {ratios['processor']:>5.1f} x stable-baselines3 (wall: {ratios['wall']:.1f} x)"
        )
    print(f"load average during the run: {min(loads):.1f} to {max(loads):.1f} (1.0 is ours)")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            {
                "command": "python benchmarks/training_speed.py",
                "machine": platform.processor() or platform.machine(),
                "python": platform.python_version(),
                "jax": jax.__version__,
                "load": loads,
                "rows": rows,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
