"""The tasks by name: options, thresholds, budgets, exact returns.

Reading this table costs nothing: gymnax and the environments are imported by ``make``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from gcr_rl.errors import InputError, unknown_name

if TYPE_CHECKING:
    from gymnax.environments.environment import EnvParams

    from gcr_rl.envs.base import BaseEnvironment

ObservationKind = Literal["vector", "grid", "image"]


@dataclass(frozen=True)
class Task:
    """A task's definition; ``threshold`` is the raw return of steps-to-threshold, if it has one."""

    name: str
    summary: str
    paper_id: str
    options: dict[str, Any] = field(hash=False)
    threshold: float | None
    budget: int
    observation_kind: ObservationKind
    maker: str
    """Where the environment is built: ``module:function`` inside ``gcr_rl.envs``."""
    static: tuple[str, ...] = ()
    """Options that fix a shape: arguments of the maker rather than leaves of the parameters."""

    def optimal_return(self, **options: Any) -> float | None:
        """The best expected return of one episode; exact by dynamic programming where finite."""
        return _returns(self.name, tuple(sorted(_checked(self, options).items())))[0]

    def random_return(self, **options: Any) -> float | None:
        """The expected return of one episode of uniformly random actions."""
        return _returns(self.name, tuple(sorted(_checked(self, options).items())))[1]


def _probe(name: str, function: str, summary: str, threshold: float, kind: str) -> Task:
    horizons = {"Probe-TwoState": 10, "Probe-Cycle": 10, "Probe-Order": 20}
    return Task(
        name=name,
        summary=summary,
        paper_id="",
        options={"horizon": horizons.get(name, 30)},
        threshold=threshold,
        budget=10_000,
        observation_kind="grid" if kind == "grid" else "vector",
        maker=f"probes:{function}",
    )


def _minatar(game: str, summary: str, horizon: int = 1_000) -> Task:
    return Task(
        name=f"MinAtar-{game}",
        summary=f"gymnax's MinAtar: {summary}",
        paper_id="",
        options={"horizon": horizon},
        threshold=None,  # no optimum is known, and none is agreed upon
        budget=1_000_000,
        observation_kind="grid",
        maker=f"minatar:{game}",
    )


# Thresholds are 90 % of the way from the random to the optimal return, rounded to two
# decimals; CartPole keeps the 475 of Gymnasium's own registry.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="CartPole",
            summary="balance a pole on a cart (gymnax's CartPole-v1)",
            paper_id="Cartpole",
            options={"horizon": 500},
            threshold=475.0,
            budget=50_000,
            observation_kind="vector",
            maker="cartpole:CartPole",
        ),
        Task(
            name="RotMirrorGrid",
            summary="19x19 grid, one map in eight orientations, symmetry broken on demand",
            paper_id="E1",
            options={"p_asym": 0.0, "epsilon": 0.0, "horizon": 200},
            threshold=-30.27,
            budget=60_000,
            observation_kind="grid",
            maker="rotmirror:RotMirrorGrid",
        ),
        Task(
            name="ButtonPermutation",
            summary="six buttons in a fresh order each episode, read off an RGB legend",
            paper_id="E2",
            options={"legend": True, "tile_size": 3, "horizon": 10},
            threshold=4.25,
            budget=100_000,
            observation_kind="image",
            maker="button:button_permutation",
            static=("legend", "tile_size", "horizon"),
        ),
        Task(
            name="NoisyRPSChain",
            summary="10-state chain with rock-paper-scissors detours and reward noise",
            paper_id="E4",
            options={"eta": 0.3, "sigma": 0.5, "horizon": 60},
            threshold=6.77,
            budget=20_000,
            observation_kind="vector",
            maker="chain:NoisyRPSChain",
        ),
        _probe("Probe-TwoState", "two_state", "two states, Q* in closed form", 0.99, "vector"),
        _probe("Probe-C4", "known_c4", "5x5 grid, rotations only", -3.22, "grid"),
        _probe("Probe-D4", "known_d4", "5x5 grid, rotations and mirror images", -3.23, "grid"),
        _probe("Probe-Order", "known_order", "4x4 lattice, a partial order", -5.08, "vector"),
        _probe("Probe-Cycle", "injected_cycle", "ring of equals, cyclic evidence", 0.97, "vector"),
        _probe("Probe-NoSymmetry", "no_symmetry", "5x5 grid without symmetry", -4.44, "grid"),
        _minatar("Breakout", "a paddle, a ball, bricks"),
        _minatar("Asterix", "collect gold, avoid enemies"),
        _minatar("Freeway", "cross a road of eight lanes", 2_500),
        _minatar("SpaceInvaders", "shoot descending aliens"),
    )
}

ALIASES = {"CartPole-v1": "CartPole"}


def task(name: str) -> Task:
    """The task of that name (or alias); an unknown one raises with the nearest name."""
    found = TASKS.get(ALIASES.get(name, name))
    if found is None:
        raise unknown_name("task", name, TASKS)
    return found


def make(name: str, **options: Any) -> "tuple[BaseEnvironment, EnvParams]":
    """The environment of a task and its parameters, with ``options`` over the defaults."""
    chosen = task(name)
    values = _checked(chosen, options)
    module, function = chosen.maker.split(":")
    build = getattr(import_module(f"gcr_rl.envs.{module}"), function)
    environment = build(**{key: values[key] for key in chosen.static})
    leaves = {key: value for key, value in values.items() if key not in chosen.static}
    leaves.pop("horizon", None)
    params = environment.default_params.replace(max_steps_in_episode=values["horizon"], **leaves)
    return environment, params


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_ACCEPTED: dict[str, tuple[Callable[[Any], bool], type, str]] = {
    "horizon": (lambda v: _whole(v) and 1 <= v <= 10**6, int, "a whole number, 1 to 1000000"),
    "p_asym": (lambda v: _number(v) and 0 <= v <= 1, float, "a probability, 0 to 1"),
    "epsilon": (lambda v: _number(v) and 0 <= v <= 1, float, "a probability, 0 to 1"),
    "eta": (lambda v: _number(v) and 0 <= v <= 1, float, "a probability, 0 to 1"),
    "sigma": (lambda v: _number(v) and v >= 0, float, "a finite number, at least 0"),
    "legend": (lambda v: isinstance(v, bool), bool, "True or False"),
    "tile_size": (lambda v: _whole(v) and 3 <= v <= 32, int, "pixels per tile, 3 to 32"),
}


def _checked(chosen: Task, options: dict[str, Any]) -> dict[str, Any]:
    """Defaults overridden by ``options``, each validated and of one type."""
    for name, value in options.items():
        if name not in chosen.options:
            raise unknown_name(f"option of {chosen.name}", name, chosen.options)
        valid, _, accepted = _ACCEPTED[name]
        if not valid(value):
            raise InputError(f"{chosen.name}.{name}", value, accepted)
    return {
        name: _ACCEPTED[name][1](options.get(name, default))
        for name, default in chosen.options.items()
    }


@lru_cache(maxsize=256)
def _returns(name: str, options: tuple[tuple[str, Any], ...]) -> tuple[float | None, float | None]:
    environment, params = make(name, **dict(options))
    return environment.exact_returns(params)
