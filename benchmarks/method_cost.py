"""What an update of every method costs, in updates of Double-DQN: one core, batch 64, 19x19 grid.

As in gcr_step.py: the update alone, with the group of the square in force for the methods that
learn one, each method with its own preset but the same network width.

    python benchmarks/method_cost.py [--quick]
"""

from pathlib import Path

from gcr_step import run_benchmark

from gcr_rl.methods import METHODS

CASES = [(name, {}) for name in ("ddqn", *(name for name in METHODS if name != "ddqn"))]
RESULTS = Path(__file__).parent / "results" / "method_cost.json"

if __name__ == "__main__":
    run_benchmark(str(__doc__), CASES, RESULTS)
