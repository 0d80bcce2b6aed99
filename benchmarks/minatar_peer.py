"""rejax's DQN on gymnax's MinAtar games: the peer of ``gcr bench minatar``.

    python -m venv PEER && PEER/bin/pip install rejax==0.1.3 gymnax==0.0.9
    PEER/bin/python benchmarks/minatar_peer.py Breakout --out peer.json

An environment of its own, since rejax needs gymnax's older interface; nothing of gcr_rl is
imported. Frames, batches, updates, replay, exploration and target copies are those of our preset;
the network (two layers of 64) and the loss are rejax's, and so is the evaluation: 128 episodes
with epsilon 0.005. Seeds are vmapped. Final: the mean over the last fifth of the evaluations.
"""

import argparse
import json
import time

import jax
import numpy as np
from rejax import get_algo

GAMES = ("Breakout", "Asterix", "Freeway", "SpaceInvaders")


def settings(game, frames, rate, every):
    """What our preset has, under rejax's names."""
    return {
        "env": f"{game}-MinAtar",
        "total_timesteps": frames,
        "eval_freq": every,
        "skip_initial_evaluation": True,
        "learning_rate": rate,
        "num_envs": 10,
        "num_epochs": 2,
        "batch_size": 128,
        "buffer_size": 100_000,
        "fill_buffer": min(5_000, frames // 2),
        "target_update_freq": 1_000,  # frames: 200 updates
        "polyak": 0.0,
        "eps_start": 1.0,
        "eps_end": 0.1,
        "exploration_fraction": 0.1,
        "ddqn": True,
        "gamma": 0.99,
    }


def play(game, seeds, frames, rate, every):
    """Every seed's mean return at every evaluation."""
    config = settings(game, frames, rate, every)
    algorithm = get_algo("dqn").create(**config)
    keys = jax.vmap(jax.random.PRNGKey)(np.arange(seeds))
    began = time.perf_counter()
    _, (_, returns) = jax.block_until_ready(jax.jit(jax.vmap(algorithm.train))(keys))
    means = np.asarray(returns).mean(axis=-1)  # seed x evaluation
    late = max(1, means.shape[1] // 5)
    return {
        "task": f"MinAtar-{game}",
        "method": "rejax 0.1.3 DQN",
        "config": config,
        "seeds": seeds,
        "seconds": round(time.perf_counter() - began, 1),
        "final": means[:, -late:].mean(axis=1).round(3).tolist(),
        "curves": means.round(3).tolist(),
        "steps": [every * (i + 1) for i in range(means.shape[1])],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("games", nargs="+", choices=GAMES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    rows = []
    for game in options.games:
        rows.append(play(game, options.seeds, options.frames, options.rate, options.every))
        print(game, rows[-1]["final"], f"{rows[-1]['seconds']} s", flush=True)
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
