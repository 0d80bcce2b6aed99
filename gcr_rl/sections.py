"""The sections of a configuration: every knob, with its default and one line that says what it
does. The only place with defaults."""

from dataclasses import dataclass
from typing import Literal

TOLD = ("sign", "square", "rotations", "tiles")
"""Encoders that are told a group, and make the whole network."""


@dataclass(frozen=True)
class NetworkConfig:
    """The value network: an encoder of the observation and a head with one output per action."""

    encoder: Literal[
        "auto", "mlp", "cnn", "minatar", "nature", "impala", "sign", "square", "rotations", "tiles"
    ] = "auto"
    """auto: mlp for vectors and small grids, cnn for images; the last four are told a group."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the fully connected layers (after the convolutions, where there are any)."""
    layer_norm: bool = False
    """Bring what these layers give to mean 0 and variance 1 before the ReLU."""
    channels: tuple[int, ...] = (16, 32)
    """Output channels of the 3x3 convolutions of the cnn encoder."""
    strides: tuple[int, ...] = (2, 2)
    """Strides of these convolutions, one per entry of channels."""
    dueling: bool = False
    """Q = V + A - mean A from two streams instead of one linear head."""
    stream: int = 0
    """Width of a hidden layer in each stream of the head; 0 for none."""
    noisy: bool = False
    """Noisy linear layers in the head: exploration that is learned (set exploration to 0)."""
    noisy_sigma: float = 0.5
    """Initial scale of their noise."""


@dataclass(frozen=True)
class OptimiserConfig:
    """Adam, with its schedule and its safety belt."""

    learning_rate: float = 1e-3
    """Step size at the start."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the step size moves from learning_rate to learning_rate * final_fraction."""
    final_fraction: float = 0.0
    """Share of the step size that is left at the end of a linear or cosine schedule."""
    warm_up: int = 0
    """Updates over which the step size rises to its schedule, from nothing."""
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
    atoms: int = 0
    """Atoms of the distribution of returns that is learned (C51); 0 learns values alone."""
    support_low: float = -10.0
    """The smallest return on the support of the distribution (atoms above 0)."""
    support_high: float = 10.0
    """The largest one."""


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
    prioritised: bool = False
    """Draw by a power of the last error and weigh the losses; recent_share is not read then."""
    exponent: float = 0.5
    """That power (prioritised)."""
    beta: float = 0.4
    """Power of the importance weights at the start; it rises to 1 at the end (prioritised)."""
    pooled: bool = False
    """A reward counts as the mean of all that were seen for the same observation and action."""


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
    tensorboard: bool = False
    """Also write the rows as TensorBoard event files, in the run folder's tensorboard/."""


@dataclass(frozen=True)
class SymmetryConfig:
    """Which symmetries are learned, and how values are made to respect them."""

    family: Literal["none", "grounded", "latent"] = "none"
    """grounded certifies transforms of observations; latent learns a bank in feature space."""
    enforce: Literal["auto", "quotient", "reynolds", "loss"] = "auto"
    """quotient and reynolds are exact, loss is soft; auto: reynolds for vectors, else quotient."""
    relabel: bool = True
    """Rename actions with each transform; off is the ablation that leaves them as they are."""
    coefficient: float = 1.0
    """Weight of the equivariance loss (enforce loss) or of all latent terms."""
    shared: float = 1.0
    """Weight of temporal-difference learning on transformed transitions (enforce loss)."""
    window: int = 20_000
    """Newest transitions that a check of the certificates reads."""
    first_check: int = 500
    """Environment steps before the first check; later ones come at ends of logging intervals."""
    pause: int = 400
    """Least environment steps between two checks; the pause grows while nothing changes."""
    longest_pause: int = 50_000
    """Largest pause between two checks."""
    provisional: bool = True
    """Enforce what nothing contradicts even before rewards or ends have been seen to agree."""
    elements: int = 8
    """Transforms of the latent bank, the identity included."""
    contraction_period: int = 200
    """Updates between two projection-closure-alignment cycles of the latent bank."""


@dataclass(frozen=True)
class OrderConfig:
    """Which comparisons are drawn from experience, and how values are aligned to them."""

    evidence: Literal["none", "returns", "nudge"] = "none"
    """returns: lower bounds by multi-step returns; nudge: the paper's one-step comparisons."""
    route: Literal["soft", "hard"] = "soft"
    """soft adds a loss; hard moves the regression targets onto the order exactly."""
    coefficient: float = 1.0
    """Weight of the order loss on the soft route; 0 switches the order off on either route."""
    horizons: tuple[int, ...] = (10,)
    """Steps after which a return is bootstrapped into a bound; they take turns (returns)."""
    pairs: bool = False
    """Draw half as many starts, each with a later step whose target bounds it (returns)."""
    noise_z: float = 3.0
    """Bounds are lowered until luck passes with probability exp(-z²/2) at most (returns)."""
    doubt: float = 1.0
    """Largest share of chance among the slots that a batch raises; 1 asks nothing (returns)."""
    dag: bool = True
    """Keep comparisons only as far as they close no cycle, the heaviest first (nudge)."""
    neighbours: int = 8
    """Candidates per transition, nearest in feature space (nudge)."""
    temperature: float = 1.0
    """Scale of the nudges in their scores (nudge)."""
    percentile: float = 50.0
    """Scores below this percentile of the batch propose nothing (nudge)."""
    steps: int = 3
    """Inner isotonic steps of the soft route, 1 to 5."""
    penalty: float = 10.0
    """Largest weight of the squared violation in the isotonic surrogate."""
    rank_weight: float = 0.1
    """Weight of the rank term in the isotonic surrogate."""
    margin: float = 0.1
    """Largest margin that an order edge asks for (nudge)."""
    floor: float = 0.2
    """Share of coefficient, penalty and margin that is in force while noise is large."""
    refresh: int = 250
    """Updates between two measurements of noise."""


@dataclass(frozen=True)
class AugmentConfig:
    """Random transforms of the observations in a batch; the actions stay as they are."""

    images: Literal["none", "translate", "crop", "shift", "flip", "mirror", "rotate", "cutout"] = (
        "none"
    )
    """For pictures and grids; flip is left to right, mirror either way, shift is bilinear."""
    vectors: Literal["none", "amplitude", "noise"] = "none"
    """For vectors: one random factor, or normal noise."""
    value_loss: bool = True
    """Temporal differences see augmented observations; off: only the contrast does."""
    margin: int = 1
    """Largest move in pixels (translate, crop, shift)."""
    largest_cut: int = 3
    """Largest side of the rectangle that is blanked (cutout)."""
    amplitude: float = 0.2
    """The factor is uniform in 1 - amplitude to 1 + amplitude."""
    deviation: float = 0.02
    """Standard deviation of the noise."""


@dataclass(frozen=True)
class ContrastConfig:
    """CURL's auxiliary loss: two augmented views of an observation know each other."""

    weight: float = 0.0
    """Weight of the contrastive loss; 0 switches it off."""
    code: int = 128
    """Width of the codes that are compared."""
    rate: float = 0.001
    """Share of the online encoder mixed into the slow one after each update."""
