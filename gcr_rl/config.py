"""A :class:`Config` determines a run completely.

``sections`` has its fields with their defaults; ``presets.preset(task, method)`` gives the tuned
values of a task and a method; ``Config.replace({"replay.batch_size": 128})`` changes
fields by their dotted names; ``validate`` is called once, at the edge.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from gcr_rl.errors import InputError, unknown_name
from gcr_rl.fields import check_types, field_names, from_json, plain
from gcr_rl.methods import METHODS
from gcr_rl.sections import (
    TOLD,
    AugmentConfig,
    ContrastConfig,
    EvaluationConfig,
    ExplorationConfig,
    LoopConfig,
    NetworkConfig,
    OptimiserConfig,
    OrderConfig,
    ReplayConfig,
    RunConfig,
    SymmetryConfig,
    ValueConfig,
)


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
    symmetry: SymmetryConfig = SymmetryConfig()
    order: OrderConfig = OrderConfig()
    augment: AugmentConfig = AugmentConfig()
    contrast: ContrastConfig = ContrastConfig()
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
    horizons = config.order.horizons if config.order.evidence == "returns" else ()
    longest = max(config.value.n_step, *horizons, 1)
    needed = loop.num_envs * (longest + 1)
    if replay.capacity < needed:
        raise InputError(
            "replay.capacity", replay.capacity,
            f"at least loop.num_envs * (longest segment + 1) = {needed}",
        )  # fmt: skip
    if replay.learning_starts < needed:
        raise InputError(
            "replay.learning_starts", replay.learning_starts,
            f"at least loop.num_envs * (longest segment + 1) = {needed}",
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
    _check_structure(config)
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


def _check_structure(config: Config) -> None:
    """Constraints of the symmetry and order sections."""
    order, batch = config.order, config.replay.batch_size
    told = config.network.encoder in TOLD
    if told and config.symmetry.family != "none":
        raise InputError(
            "network.encoder", config.network.encoder,
            f"another: it is told a group, symmetry.family {config.symmetry.family} learns one",
        )  # fmt: skip
    _check_head(config, told)
    _check_views(config)
    if not order.horizons or any(not 1 <= steps <= 1_000 for steps in order.horizons):
        raise InputError("order.horizons", order.horizons, "one or more whole numbers, 1 to 1000")
    if order.pairs and (order.evidence != "returns" or batch % 2):
        accepted = "False without order.evidence returns and an even replay.batch_size"
        raise InputError("order.pairs", order.pairs, accepted)
    if order.evidence == "nudge" and order.neighbours >= batch:
        raise InputError(
            "order.neighbours", order.neighbours, f"less than replay.batch_size ({batch})"
        )


def _check_head(config: Config, told: bool) -> None:
    """Constraints of what stands behind the encoder, and of the distribution it gives."""
    value, latent = config.value, config.symmetry.family == "latent"
    for name in ("dueling", "noisy", "stream"):
        if getattr(config.network, name) and (told or latent):
            accepted = f"{0 if name == 'stream' else False}: the network needs its linear head"
            raise InputError(f"network.{name}", getattr(config.network, name), accepted)
    if value.atoms == 1 or (value.atoms and latent):
        accepted = "0: the network needs its linear head" if latent else "0, or from 2 to 1000"
        raise InputError("value.atoms", value.atoms, accepted)
    if value.atoms and value.support_low >= value.support_high:
        raise InputError(
            "value.support_low", value.support_low,
            f"less than value.support_high ({value.support_high:g})",
        )  # fmt: skip


def _check_views(config: Config) -> None:
    """Constraints of augmentation and contrast."""
    if config.contrast.weight == 0.0:
        return
    if config.augment.images == config.augment.vectors == "none":
        raise InputError(
            "contrast.weight", config.contrast.weight,
            "0 without augment.images or augment.vectors: there is nothing to compare",
        )  # fmt: skip
    if config.symmetry.family == "latent":
        raise InputError("contrast.weight", config.contrast.weight, "0 with symmetry.family latent")


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("steps", 1, 2**31 - 1),
    ("network.stream", 0, 2**20),
    ("network.noisy_sigma", 0.0, 100.0),
    ("optimiser.learning_rate", 1e-12, 10.0),
    ("optimiser.final_fraction", 0.0, 1.0),
    ("optimiser.warm_up", 0, 2**31 - 1),
    ("optimiser.adam_epsilon", 1e-16, 1.0),
    ("optimiser.clip_norm", 0.0, 1e9),
    ("value.discount", 0.0, 1.0),
    ("value.n_step", 1, 1_000),
    ("value.huber_delta", 1e-6, 1e9),
    ("value.target_period", 1, 2**31 - 1),
    ("value.target_rate", 1e-6, 1.0),
    ("value.atoms", 0, 1_000),
    ("value.support_low", -1e9, 1e9),
    ("value.support_high", -1e9, 1e9),
    ("symmetry.coefficient", 0.0, 1e6),
    ("symmetry.shared", 0.0, 1e6),
    ("symmetry.window", 1, 2**31 - 1),
    ("symmetry.first_check", 1, 2**31 - 1),
    ("symmetry.pause", 1, 2**31 - 1),
    ("symmetry.longest_pause", 1, 2**31 - 1),
    ("symmetry.elements", 1, 256),
    ("symmetry.contraction_period", 1, 2**31 - 1),
    ("order.coefficient", 0.0, 1e6),
    ("order.noise_z", 0.0, 100.0),
    ("order.doubt", 0.0, 1.0),
    ("order.neighbours", 1, 1_024),
    ("order.temperature", 1e-6, 1e6),
    ("order.percentile", 0.0, 100.0),
    ("order.steps", 1, 5),
    ("order.penalty", 0.0, 1e6),
    ("order.rank_weight", 0.0, 1e6),
    ("order.margin", 0.0, 1e6),
    ("order.floor", 0.0, 1.0),
    ("order.refresh", 1, 2**31 - 1),
    ("augment.margin", 0, 1_000),
    ("augment.largest_cut", 1, 1_000),
    ("augment.amplitude", 0.0, 1.0),
    ("augment.deviation", 0.0, 1e6),
    ("contrast.weight", 0.0, 1e6),
    ("contrast.code", 1, 2**16),
    ("contrast.rate", 1e-9, 1.0),
    ("replay.capacity", 1, 2**31 - 1),
    ("replay.batch_size", 1, 2**20),
    ("replay.learning_starts", 1, 2**31 - 1),
    ("replay.recent_share", 0.0, 1.0),
    ("replay.recent_window", 1, 2**31 - 1),
    ("replay.exponent", 0.0, 1.0),
    ("replay.beta", 0.0, 1.0),
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


def section_names() -> list[str]:
    """The fields of a configuration that are sections."""
    return [f.name for f in dataclasses.fields(Config) if dataclasses.is_dataclass(f.default)]


def dotted_names() -> list[str]:
    """The dotted name of every field."""
    names = []
    for name in field_names(Config):
        if name in section_names():
            names += [f"{name}.{inner}" for inner in field_names(getattr(Config, name))]
        else:
            names.append(name)
    return names
