"""A connection to a Ray cluster, and what its machines offer. Ray is imported here alone."""

import contextlib
import importlib
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gcr_rl.errors import InputError

_PATIENCE = 5.0
"""Seconds for an address to answer."""


@dataclass(frozen=True)
class Demand:
    """What one job takes of a machine: processors and accelerators, or parts of one."""

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        for name, value, low in (("cpus", self.cpus, 0.01), ("gpus", self.gpus, 0.0)):
            whole = value <= 1.0 or float(value).is_integer()
            if not low <= value <= 1_024.0 or not whole:
                raise InputError(name, value, f"from {low:g} to 1024; above 1 a whole number")

    def places(self, machine: dict[str, float]) -> int:
        """How many jobs a machine with these resources holds at a time."""
        counts = [machine.get("CPU", 0.0) / self.cpus]
        if self.gpus:
            counts.append(machine.get("GPU", 0.0) / self.gpus)
        return int(min(counts) + 1e-9)


def import_ray() -> Any:
    """The module, or one clear line."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # no GPU asked, none seen
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        accepted = f"local, or ray after pip install 'gcr-rl[ray]' ({error})"
        raise InputError("engine", "ray", accepted) from None


@contextlib.contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connected to the cluster at ``address``, or to one of this machine made for the occasion.

    A connection that the caller has already is used and left open.
    """
    if ray.is_initialized():
        yield
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_reachable(wanted)
    local = {"include_dashboard": False} if wanted == "local" else {}
    try:
        with _own_signals(), warnings.catch_warnings():
            # Ray forks to start its processes, which JAX warns of; they run no JAX before exec.
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
            ray.init(address=wanted, logging_level="ERROR", log_to_driver=False, **local)
    except Exception as error:  # Ray has many: refused, another version, no room
        raise _unreachable(wanted, str(error) or type(error).__name__) from None
    try:
        yield
    finally:
        ray.shutdown()


def places(ray: Any, demand: Demand) -> int:
    """How many jobs the machines of the cluster hold at a time."""
    return sum(demand.places(node["Resources"]) for node in ray.nodes() if node["Alive"])


def _check_reachable(address: str) -> None:
    """Ask the port itself: Ray would try for a minute, and say much."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise InputError("address", address, "HOST:PORT, ray://HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise _unreachable(address, str(error)) from None


def _unreachable(address: str, reason: str) -> InputError:
    line = " ".join(reason.split())[:300]
    return InputError("address", address, f"a Ray cluster that answers ({line})")


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself: put back what was there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
