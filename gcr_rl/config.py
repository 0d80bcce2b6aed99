"""Every knob, with its default and one line that says what it does. The only place with defaults.

A :class:`Config` determines a run completely. ``preset(task, method)`` gives the tuned
defaults of a task and a method; ``Config.replace({"replay.batch_size": 128})`` changes
fields by their dotted names; ``validate`` is called once, at the edge.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from gcr_rl.errors import InputError, unknown_name
from gcr_rl.fields import check_types, field_names, from_json, plain


@dataclass(frozen=True)
class NetworkConfig:
    """The value network: an encoder of the observation and a head with one output per action."""

    encoder: Literal["auto", "mlp", "cnn"] = "auto"
    """auto takes mlp for vectors and small grids (as the paper does) and cnn for images."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the fully connected layers (after the convolutions, where there are any)."""
    channels: tuple[int, ...] = (16, 32)
    """Output channels of the 3x3 convolutions of the cnn encoder."""
    strides: tuple[int, ...] = (2, 2)
    """Strides of these convolutions, one per entry of channels."""


@dataclass(frozen=True)
class OptimiserConfig:
    """Adam, with its schedule and its safety belt."""

    learning_rate: float = 1e-3
    """Step size at the start."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the step size moves from learning_rate to learning_rate * final_fraction."""
    final_fraction: float = 0.0
    """Share of the step size that is left at the end of a linear or cosine schedule."""
    adam_epsilon: float = 1e-8
    """Adam's denominator offset."""
    clip_norm: float = 10.0
    """Largest global gradient norm; 0 switches clipping off."""


@dataclass(frozen=True)
class ValueConfig:
    """The temporal-difference target and loss."""

    double: bool = True
    """Pick the next action by the online network and value it by the target network."""
    discount: float = 0.99
    """Discount per environment step."""
    n_step: int = 1
    """Rewards that are summed before the bootstrap."""
    loss: Literal["huber", "squared"] = "huber"
    """Loss on the temporal-difference error."""
    huber_delta: float = 1.0
    """Where the Huber loss turns from a parabola into a line."""
    target_period: int = 500
    """Updates between two moves of the target network."""
    target_rate: float = 1.0
    """Share of the online network mixed into the target at each move; 1 copies it."""


@dataclass(frozen=True)
class ReplayConfig:
    """What is remembered, and how much of it an update sees."""

    capacity: int = 10_000
    """Transitions kept per seed."""
    batch_size: int = 64
    """Transitions (or segments) per update."""
    learning_starts: int = 1_000
    """Environment steps before the first update."""
    recent_share: float = 0.0
    """Share of the draws that comes from the newest transitions; 0 draws uniformly from all."""
    recent_window: int = 1_000
    """How many transitions count as the newest; read if recent_share is above 0."""


@dataclass(frozen=True)
class ExplorationConfig:
    """Epsilon-greedy, linearly annealed."""

    start: float = 1.0
    """Epsilon at the first step."""
    end: float = 0.05
    """Epsilon after the annealing."""
    fraction: float = 0.2
    """Share of the budget over which epsilon falls."""


@dataclass(frozen=True)
class LoopConfig:
    """How interaction and learning take turns."""

    num_envs: int = 1
    """Environments per seed, stepped together."""
    train_every: int = 1
    """Steps of each environment between two learning phases."""
    updates: int = 1
    """Updates per learning phase."""


@dataclass(frozen=True)
class EvaluationConfig:
    """The fixed evaluation protocol; it has a random stream of its own."""

    every: int = 1_000
    """Environment steps between evaluations (one more happens before the first step)."""
    episodes: int = 10
    """Sampled episodes per evaluation and seed."""
    epsilon: float = 0.0
    """Share of random actions during evaluation."""
    mode: Literal["auto", "exact", "sampled"] = "auto"
    """exact adds exact policy evaluation (finite tasks only); auto does so where it is cheap."""


@dataclass(frozen=True)
class RunConfig:
    """What is written, and when."""

    log_every: int = 500
    """Environment steps between two rows of log.jsonl."""
    checkpoint_every: int = 5_000
    """Environment steps between two checkpoints."""
    keep: int = 2
    """Checkpoints that are kept; the newest ones."""


@dataclass(frozen=True)
class Config:
    """Everything that determines a run."""

    task: str
    """Task name (`gcr envs` lists them), or gym:ID for any Gymnasium environment."""
    method: str = "ddqn"
    """Method name (`gcr methods` lists them)."""
    steps: int = 50_000
    """Environment steps per seed."""
    seeds: tuple[int, ...] = (0,)
    """Seeds; all of them train in one program."""
    env: dict[str, Any] = field(default_factory=dict)
    """Options of the task."""
    network: NetworkConfig = NetworkConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    value: ValueConfig = ValueConfig()
    replay: ReplayConfig = ReplayConfig()
    exploration: ExplorationConfig = ExplorationConfig()
    loop: LoopConfig = LoopConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps of one turn of the training loop."""
        return self.loop.num_envs * self.loop.train_every

    def get(self, dotted: str) -> Any:
        """The field of that dotted name."""
        node: Any = self
        for name in dotted.split("."):
            node = getattr(node, name)
        return node

    def replace(self, overrides: Mapping[str, Any]) -> "Config":
        """A copy with fields changed by their dotted names; unknown names are refused."""
        if not isinstance(overrides, Mapping):
            raise InputError("overrides", overrides, 'a dictionary, {"replay.batch_size": 128} say')
        config = self
        for name, value in overrides.items():
            config = _replace_one(config, str(name).split("."), value, str(name))
        return config

    def to_json(self) -> dict[str, Any]:
        """Plain data, the content of config.json."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Config":
        """The inverse of :meth:`to_json`; fields that do not exist are refused."""
        return from_json(Config, data, "config")


@dataclass(frozen=True)
class Method:
    """A named set of overrides: an ablation is a coefficient, never a copied file."""

    name: str
    summary: str
    overrides: Mapping[str, Any]


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("dqn", "deep Q-learning with replay and a target network", {"value.double": False}),
        Method("ddqn", "Double-DQN: the online network picks the next action", {}),
    )
}

# Tuned values per task (docs/agents.md says how); every method of a task starts from them.
TASK_PRESETS: dict[str, dict[str, Any]] = {
    "CartPole": {
        "steps": 50_000,
        "network.hidden": (128, 128),
        "optimiser.learning_rate": 2e-3,
        "optimiser.schedule": "linear",
        "optimiser.clip_norm": 1.0,
        "value.discount": 0.995,
        "value.loss": "squared",
        "value.n_step": 3,
        "value.target_period": 1,
        "value.target_rate": 0.02,
        "replay.capacity": 50_000,
        "replay.batch_size": 128,
        "replay.recent_share": 0.5,
        "replay.recent_window": 5_000,
        "loop.train_every": 250,
        "loop.updates": 125,
        "exploration.end": 0.1,
        "exploration.fraction": 0.2,
    },
    "RotMirrorGrid": {
        "steps": 60_000,
        "network.hidden": (128, 128),
        "optimiser.learning_rate": 2e-3,
        "value.loss": "squared",
        "value.n_step": 3,
        "value.target_period": 1,
        "value.target_rate": 0.005,
        "replay.capacity": 60_000,
        "replay.batch_size": 128,
        "exploration.end": 0.1,
        "exploration.fraction": 0.5,
        "evaluation.every": 2_000,
    },
    "ButtonPermutation": {
        "steps": 100_000,
        "network.hidden": (128,),
        "replay.capacity": 50_000,
        "exploration.end": 0.05,
        "exploration.fraction": 0.3,
        "evaluation.every": 5_000,
        "evaluation.episodes": 50,
    },
    "NoisyRPSChain": {
        "steps": 20_000,
        "optimiser.learning_rate": 2e-3,
        "optimiser.schedule": "linear",
        "value.target_period": 1,
        "value.target_rate": 0.02,
        "replay.capacity": 20_000,
        "replay.learning_starts": 200,
        "exploration.end": 0.1,
        "exploration.fraction": 0.2,
        "evaluation.every": 500,
    },
}
TASK_PRESETS["CartPole-v1"] = TASK_PRESETS["CartPole"]
for _probe in ("TwoState", "C4", "D4", "Order", "Cycle", "NoSymmetry"):
    TASK_PRESETS[f"Probe-{_probe}"] = {"steps": 10_000}

METHOD_PRESETS: dict[tuple[str, str], dict[str, Any]] = {}


def preset(task: str, method: str = "ddqn", overrides: Mapping[str, Any] | None = None) -> Config:
    """The tuned defaults of ``method`` on ``task``, then ``overrides``, validated."""
    if not isinstance(task, str):
        raise InputError("task", task, "a text")
    if not isinstance(method, str) or method not in METHODS:
        raise unknown_name("method", method, METHODS)
    config = Config(task=task, method=method)
    for layer in (
        TASK_PRESETS.get(task, {}),
        METHODS[method].overrides,
        METHOD_PRESETS.get((task, method), {}),
        overrides or {},
    ):
        config = config.replace(layer)
    validate(config)
    return config


def validate(config: Config) -> None:
    """Refuse a configuration that could not run, naming the field, the value and the remedy."""
    if not isinstance(config, Config):
        raise InputError("config", config, "a Config, as preset(task, method) makes it")
    if config.method not in METHODS:
        raise unknown_name("method", config.method, METHODS)
    check_types(config, "")
    _check_seeds(config.seeds)
    for name, low, high in _BOUNDS:
        value = config.get(name)
        if not (low <= value <= high) or math.isnan(value):
            raise InputError(name, value, _interval(low, high))
    _check_sizes(config)


def _check_seeds(seeds: tuple[int, ...]) -> None:
    if not seeds:
        raise InputError("seeds", seeds, "at least one seed")
    for seed in seeds:
        if not 0 <= seed < 2**31:
            raise InputError("seeds", seed, "whole numbers from 0 to 2147483647")
    if len(set(seeds)) != len(seeds):
        raise InputError("seeds", seeds, "each seed once")


def _check_sizes(config: Config) -> None:
    """Constraints that tie several fields together."""
    replay, loop, network = config.replay, config.loop, config.network
    if replay.batch_size > replay.capacity:
        raise InputError(
            "replay.batch_size", replay.batch_size, f"at most replay.capacity ({replay.capacity})"
        )
    needed = loop.num_envs * (config.value.n_step + 1)
    if replay.capacity < needed:
        raise InputError(
            "replay.capacity", replay.capacity,
            f"at least loop.num_envs * (value.n_step + 1) = {needed}",
        )  # fmt: skip
    if replay.learning_starts < needed:
        raise InputError(
            "replay.learning_starts", replay.learning_starts,
            f"at least loop.num_envs * (value.n_step + 1) = {needed}",
        )  # fmt: skip
    if replay.recent_share > 0.0 and not loop.num_envs <= replay.recent_window <= replay.capacity:
        raise InputError(
            "replay.recent_window", replay.recent_window,
            f"from loop.num_envs ({loop.num_envs}) to replay.capacity ({replay.capacity})",
        )  # fmt: skip
    turn = config.steps_per_iteration
    if -(-replay.learning_starts // turn) * turn >= config.steps:  # learning begins at a turn
        raise InputError(
            "replay.learning_starts", replay.learning_starts,
            f"at most {config.steps - turn}, a turn of {turn} before the end at step "
            f"{config.steps}, or nothing would be learned",
        )  # fmt: skip
    if len(network.channels) != len(network.strides):
        raise InputError(
            "network.strides", network.strides, "as many entries as network.channels has"
        )
    for name in ("network.hidden", "network.channels", "network.strides"):
        widths = config.get(name)
        if not widths or any(not 1 <= width <= 2**20 for width in widths):
            raise InputError(name, widths, "one or more whole numbers from 1 to 1048576")
    for name in ("steps", "evaluation.every", "run.log_every", "run.checkpoint_every"):
        if config.get(name) % config.steps_per_iteration:
            raise InputError(
                name, config.get(name),
                "a multiple of loop.num_envs * loop.train_every = "
                f"{config.steps_per_iteration}",
            )  # fmt: skip


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("steps", 1, 2**31 - 1),
    ("optimiser.learning_rate", 1e-12, 10.0),
    ("optimiser.final_fraction", 0.0, 1.0),
    ("optimiser.adam_epsilon", 1e-16, 1.0),
    ("optimiser.clip_norm", 0.0, 1e9),
    ("value.discount", 0.0, 1.0),
    ("value.n_step", 1, 1_000),
    ("value.huber_delta", 1e-6, 1e9),
    ("value.target_period", 1, 2**31 - 1),
    ("value.target_rate", 1e-6, 1.0),
    ("replay.capacity", 1, 2**31 - 1),
    ("replay.batch_size", 1, 2**20),
    ("replay.learning_starts", 1, 2**31 - 1),
    ("replay.recent_share", 0.0, 1.0),
    ("replay.recent_window", 1, 2**31 - 1),
    ("exploration.start", 0.0, 1.0),
    ("exploration.end", 0.0, 1.0),
    ("exploration.fraction", 0.0, 1.0),
    ("loop.num_envs", 1, 2**16),
    ("loop.train_every", 1, 2**20),
    ("loop.updates", 1, 2**16),
    ("evaluation.every", 1, 2**31 - 1),
    ("evaluation.episodes", 1, 2**16),
    ("evaluation.epsilon", 0.0, 1.0),
    ("run.log_every", 1, 2**31 - 1),
    ("run.checkpoint_every", 1, 2**31 - 1),
    ("run.keep", 1, 1_000),
)


def _interval(low: float, high: float) -> str:
    def show(number: float) -> str:
        return f"{number:d}" if isinstance(number, int) else f"{number:g}"

    return f"from {show(low)} to {show(high)}"


def _replace_one(node: Any, path: list[str], value: Any, dotted: str) -> Any:
    head, rest = path[0], path[1:]
    if not dataclasses.is_dataclass(node) or head not in field_names(node):
        raise unknown_name("configuration field", dotted, dotted_names())
    value = _replace_one(getattr(node, head), rest, value, dotted) if rest else plain(value)
    return dataclasses.replace(cast(Any, node), **{head: value})


def dotted_names() -> list[str]:
    """The dotted name of every field."""
    names = []
    for part in dataclasses.fields(Config):
        inner = part.default
        if dataclasses.is_dataclass(inner):
            names += [f"{part.name}.{name}" for name in field_names(inner)]
        else:
            names.append(part.name)
    return names
