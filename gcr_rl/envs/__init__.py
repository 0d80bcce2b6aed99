"""JAX environments on gymnax's contract, with exact returns where the state space is finite."""

from gcr_rl.envs.tasks import TASKS, Task, make, task

__all__ = ["TASKS", "Task", "make", "task"]
