"""Worlds with a planted group and traps without one, for the certificate of symmetries.

Each is a few lines of numpy that play uniformly random actions: what is tested is what can be
told from transitions alone. ``truth`` maps the names of a vocabulary's elements to relabellings;
everything else in that vocabulary is false.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from gcr_rl.envs import dihedral

Reset = Callable[[np.random.Generator], Any]
Step = Callable[[np.random.Generator, Any, int], tuple[Any, float, bool]]
ROTATED = dihedral.NAMES
UP, DOWN, LEFT, RIGHT = dihedral.UP, dihedral.DOWN, dihedral.LEFT, dihedral.RIGHT


class SymmetryProbe(NamedTuple):
    """One world; ``vocabulary(*arguments)`` of the kinds we ship is what is asked about."""

    name: str
    vocabulary: str
    arguments: tuple[Any, ...]
    num_actions: int
    reset: Reset
    step: Step
    observe: Callable[[Any], Shaped[np.ndarray, "..."]]
    truth: dict[str, list[int]]
    budget: int
    """Transitions within which the truth should be certified."""
    horizon: int = 40


def play(probe: SymmetryProbe, seed: int, count: int) -> tuple[np.ndarray, ...]:
    """``count`` transitions of random play: observation, action, reward, next observation,
    terminated, truncated, episode."""
    generator = np.random.default_rng(seed)
    rows, state, time, episode = [], probe.reset(generator), 0, 0
    for _ in range(count):
        action = int(generator.integers(probe.num_actions))
        following, reward, ended = probe.step(generator, state, action)
        time += 1
        cut = time >= probe.horizon and not ended
        rows.append(
            (probe.observe(state), action, reward, probe.observe(following), ended, cut, episode)
        )
        state = following
        if ended or cut:
            state, time, episode = probe.reset(generator), 0, episode + 1
    columns = [np.stack([np.asarray(row[i]) for row in rows]) for i in range(7)]
    columns[2] = columns[2].astype(np.float32)
    return tuple(columns)


def _grid_world(
    name: str,
    truth: dict[str, list[int]],
    budget: int,
    move: Callable[[np.random.Generator, int, int, int], tuple[int, int]],
    reward: Callable[[int, int, int], tuple[float, bool]],
    size: int = 7,
    start: Callable[[np.random.Generator], tuple[int, int]] | None = None,
    mark: tuple[int, int] | None = None,
) -> SymmetryProbe:
    """An agent in an open square; ``mark`` is a goal that the observation shows."""

    def reset(generator: np.random.Generator) -> tuple[int, int]:
        if start is not None:
            return start(generator)
        row, column = generator.integers(size, size=2)
        return int(row), int(column)

    def step(
        generator: np.random.Generator, state: tuple[int, int], action: int
    ) -> tuple[tuple[int, int], float, bool]:
        row, column = move(generator, *state, action)
        inside = 0 <= row < size and 0 <= column < size
        following = (row, column) if inside else state
        paid, ended = reward(*following, action)
        return following, paid, ended

    def observe(state: tuple[int, int]) -> np.ndarray:
        planes = np.zeros((size, size, 2), np.uint8)
        planes[state[0], state[1], 0] = 1
        if mark is not None:
            planes[mark[0], mark[1], 1] = 1
        return planes

    return SymmetryProbe(
        name, "dihedral", ((size, size, 2),), 4, reset, step, observe, truth, budget
    )  # fmt: skip


def _plain(_: np.random.Generator, row: int, column: int, action: int) -> tuple[int, int]:
    down, right = dihedral.MOVES[action]
    return row + int(down), column + int(right)


def _relabel(elements: tuple[int, ...]) -> dict[str, list[int]]:
    return {ROTATED[g]: dihedral.relabelling(g).tolist() for g in elements}


def _centre(size: int = 7) -> Callable[[int, int, int], tuple[float, bool]]:
    middle = size // 2
    return lambda row, column, _: (
        (1.0, True) if (row, column) == (middle, middle) else (-0.1, False)
    )


def _swirl(generator: np.random.Generator, row: int, column: int, action: int) -> tuple[int, int]:
    """A quarter of the moves is carried on to the right of its direction."""
    clockwise = (RIGHT, LEFT, UP, DOWN)
    row, column = _plain(generator, row, column, action)
    if generator.random() < 0.25:
        return _plain(generator, row, column, clockwise[action])
    return row, column


def _sliding(generator: np.random.Generator, row: int, column: int, action: int) -> tuple[int, int]:
    """A blocked move slides to the right of its direction: no mirror image does that."""
    clockwise = (RIGHT, LEFT, UP, DOWN)
    target = _plain(generator, row, column, action)
    if min(target) < 0 or max(target) > 6:
        return _plain(generator, row, column, clockwise[action])
    return target


def _windy_half(
    generator: np.random.Generator, row: int, column: int, action: int
) -> tuple[int, int]:
    """In the right half every move up fails."""
    if column >= 4 and action == UP:
        return row, column
    return _plain(generator, row, column, action)


def _sheared(generator: np.random.Generator, row: int, column: int, action: int) -> tuple[int, int]:
    """Down goes two cells where up goes one."""
    return (row + 2, column) if action == DOWN else _plain(generator, row, column, action)


def _vector_world(
    name: str,
    truth: dict[str, list[int]],
    budget: int,
    force: Float[np.ndarray, "actions d"],
    pull: Callable[[Float[np.ndarray, " d"]], Float[np.ndarray, " d"]],
    outcome: Callable[[Float[np.ndarray, " d"]], tuple[float, bool]],
) -> SymmetryProbe:
    """x' = x + 0.1 (pull(x) + force_a), from starts around 0."""
    dimension = force.shape[1]

    def reset(generator: np.random.Generator) -> Float[np.ndarray, " d"]:
        return np.asarray(generator.uniform(-0.4, 0.4, dimension))

    def step(
        _: np.random.Generator, state: Float[np.ndarray, " d"], action: int
    ) -> tuple[Float[np.ndarray, " d"], float, bool]:
        following = state + 0.1 * (pull(state) + force[action])
        paid, ended = outcome(following)
        return following, paid, ended

    def observe(state: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        return state.astype(np.float32)

    return SymmetryProbe(
        name, "sign_flips", (dimension,), len(force), reset, step, observe, truth, budget
    )  # fmt: skip


def _slots(values: Int[np.ndarray, "3"]) -> Float[np.ndarray, "12"]:
    return np.asarray(np.eye(4, dtype=np.float32)[values].ravel())


def _counters() -> SymmetryProbe:
    """Three counters modulo 4, one action each; +1 when all are equal, which ends it: S3."""

    def reset(generator: np.random.Generator) -> Int[np.ndarray, "3"]:
        return np.asarray(generator.integers(4, size=3))

    def step(
        _: np.random.Generator, state: Int[np.ndarray, "3"], action: int
    ) -> tuple[Int[np.ndarray, "3"], float, bool]:
        following = state.copy()
        following[action] = (following[action] + 1) % 4
        won = bool((following == following[0]).all())
        return following, float(won), won

    truth = {
        "swap of slots 0 and 1": [1, 0, 2],
        "swap of slots 0 and 2": [2, 1, 0],
        "swap of slots 1 and 2": [0, 2, 1],
    }
    return SymmetryProbe("S3", "slot_permutations", (3, 4), 3, reset, step, _slots, truth, 3000)


def _bias(state: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """A spring of two coordinates, the second driven by the first."""
    return np.array([state[1], -state[0] - 0.3 * state[1]])


PUSH: Final = np.array([[0.0, -1.5], [0.0, 1.5]])
CROSS: Final = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])


def planted() -> tuple[SymmetryProbe, ...]:
    """C2, C4, D4, S3 and the product C2xC2."""

    def far(x: Float[np.ndarray, " d"]) -> tuple[float, bool]:
        return 1.0, bool(np.abs(x[0]) > 0.5)

    def rim(x: Float[np.ndarray, " d"]) -> tuple[float, bool]:
        return -1.0, bool(np.abs(x).max() > 0.6)

    return (
        _vector_world("C2", {"negation": [1, 0]}, 4000, PUSH, _bias, far),
        _grid_world("C4", _relabel((1, 2, 3)), 3000, _sliding, _centre(), mark=(3, 3)),
        _grid_world("D4", _relabel(tuple(range(1, 8))), 3000, _plain, _centre(), mark=(3, 3)),
        _counters(),
        _vector_world(
            "C2xC2",
            {"flip of 0": [1, 0, 2, 3], "flip of 1": [0, 1, 3, 2], "negation": [1, 0, 3, 2]},
            6000, CROSS, lambda x: -0.5 * x**3, rim,
        ),
    )  # fmt: skip


def traps() -> tuple[SymmetryProbe, ...]:
    """Worlds where some or all of the vocabulary looks right and is not."""

    def priced(row: int, column: int, _: int) -> tuple[float, bool]:
        return -0.5 - (7 * row + column) / 48, (row, column) == (0, 4)

    def hidden(row: int, column: int, _: int) -> tuple[float, bool]:
        return (1.0, True) if (row, column) == (1, 4) else (-0.1, False)

    def sided(x: Float[np.ndarray, " d"]) -> tuple[float, bool]:
        return (1.0 if x[0] > 0.5 else 0.0), bool(np.abs(x[0]) > 0.5)

    def corner(generator: np.random.Generator) -> tuple[int, int]:
        row, column = generator.integers(3, size=2)
        return int(row), int(column)

    def cornered(
        generator: np.random.Generator, row: int, column: int, action: int
    ) -> tuple[int, int]:
        row, column = _plain(generator, row, column, action)
        return (row, column) if row < 4 and column < 4 and row + 2 * column < 8 else (-1, -1)

    def free(row: int, column: int, _: int) -> tuple[float, bool]:
        return 0.0, (row, column) == (0, 0)

    def cart(x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        return np.array([x[1], 0.5 * np.sin(x[2]), x[3], np.sin(x[2])])

    def fallen(x: Float[np.ndarray, " d"]) -> tuple[float, bool]:
        return 1.0, bool(np.abs(x[2]) > 0.8 or np.abs(x[0]) > 1.5)

    cart_force = np.array([[0, -1, 0, 0.7], [0, 1, 0, -0.7]])
    return (
        _grid_world("no symmetry", {}, 3000, _sheared, priced),
        _grid_world("rewards of every cell", {}, 3000, _plain, priced),
        _grid_world("hidden goal", {}, 3000, _plain, hidden),
        _vector_world("prize on one side", {}, 3000, PUSH, _bias, sided),
        _vector_world(
            "cart: forward dynamics", {"negation": [1, 0]}, 4000, cart_force, cart, fallen
        ),
        _grid_world("out of support", {}, 3000, cornered, free, start=corner),
        _grid_world("half of the states", {}, 3000, _windy_half, _centre(), mark=(3, 3)),
        _grid_world(
            "mirror image of a swirl", _relabel((1, 2, 3)), 12000, _swirl, _centre(), mark=(3, 3)
        ),
    )  # fmt: skip
