"""Processes side by side on the processors of one machine: each gets its own.

XLA's threads wait by spinning. Two programs that share two cores take turns at waiting for
threads that do not run; an update of small kernels then takes five to fifty times as long.
"""

import contextlib
import os
from collections.abc import Iterable
from importlib.metadata import entry_points


def shares_of_cores(count: int) -> list[frozenset[int]]:
    """Disjoint sets of this process's cores, one for each of ``count`` processes.

    Empty sets, which stand for no restriction, where there are fewer cores than processes, where
    an accelerator does the work (its host threads compile) and where cores cannot be chosen.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    each = len(cores) // max(count, 1)
    if count < 2 or not each or not _processors_only():
        return [frozenset()] * count
    return [frozenset(cores[i * each : (i + 1) * each]) for i in range(count)]


def keep_to(process: int, cores: Iterable[int]) -> None:
    """Have a process that has just begun use these cores alone; nothing for no cores."""
    if chosen := set(cores):
        with contextlib.suppress(OSError):  # it has ended, or may not be restricted
            os.sched_setaffinity(process, chosen)


def _processors_only() -> bool:
    """Whether JAX will not look for an accelerator."""
    asked = os.environ.get("JAX_PLATFORMS", "")
    return asked == "cpu" or not (asked or entry_points(group="jax_plugins"))
