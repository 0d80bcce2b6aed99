"""Guarantees of the symmetry room, on probes whose group is known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from gcr_rl.envs import probes
from gcr_rl.envs.finite import optimal_q
from gcr_rl.envs.probes_symmetry import planted, play
from gcr_rl.symmetry import (
    Evidence,
    close_group,
    discover,
    from_elements,
    permutation_matrix,
    reynolds,
    vocabulary_kinds,
)
from gcr_rl.theory.row import Row

Floats = NDArray[np.float64]
DISCOUNT = 0.9


class Automorphisms:
    """A probe's planted group as tables: where each state goes, how actions are renamed."""

    def __init__(self, environment: Any) -> None:
        params = environment.default_params
        self.mdp = environment.finite_mdp(params)
        count = int(self.mdp.successors.shape[0])
        observe = [np.asarray(environment.observation_of(s, params)) for s in range(count)]
        place = {observation.tobytes(): state for state, observation in enumerate(observe)}
        group = environment.planted_symmetries(params)
        self.observations = np.stack(observe)
        self.state = np.array(
            [
                [place[np.asarray(g.transform(o)).astype(o.dtype).tobytes()] for o in observe]
                for g in group
            ]
        )
        self.relabel = np.stack([g.relabel for g in group])

    def act(self, q: Floats, g: int) -> Floats:
        """(U_g Q)(s, a) = Q(T_g s, Π_g a)."""
        return q[self.state[g]][:, self.relabel[g]]

    def average(self, q: Floats) -> Floats:
        """The Reynolds average mean_g U_g Q of a table."""
        return np.mean([self.act(q, g) for g in range(len(self.state))], axis=0)


def backup(mdp: Any, q: Floats) -> Floats:
    """T*Q (eq. Tstar)."""
    parts = (mdp.successors, mdp.probabilities, mdp.rewards, mdp.terminated)
    following, chance, reward, end = (np.asarray(part) for part in parts)
    future = np.where(end, 0.0, q.max(axis=1)[following])
    return np.sum(chance * (reward + DISCOUNT * future), axis=-1)


def optimal_equivariance(quick: bool, automorphisms: Any = Automorphisms) -> Row:
    """max |Q*(T_g s, Π_g a) − Q*(s, a)| over D4 and C4 (not abelian; not only involutions)."""
    worst = 0.0
    for make in (probes.known_d4, probes.known_c4):
        group = automorphisms(make())
        q = np.asarray(optimal_q(group.mdp, DISCOUNT), np.float64)
        worst = max(worst, *(np.abs(group.act(q, g) - q).max() for g in range(len(group.state))))
    what = "max |Q*(T s, Π a) − Q*(s, a)|, D4 and C4"
    return Row("optimum-equivariant", "lem:Qstar-equiv", what, "at most", 0.0, float(worst), 1e-5)


def backup_commutes(quick: bool, automorphisms: Any = Automorphisms) -> Row:
    """max |T*(U_g Q) − U_g(T* Q)| over random Q: the fixed point of any projected or averaged
    iteration is equivariant with its start."""
    draw, worst = np.random.default_rng(0), 0.0
    for make in (probes.known_d4, probes.known_c4):
        group = automorphisms(make())
        for _ in range(2 if quick else 10):
            q = draw.normal(size=group.mdp.successors.shape[:2])
            for g in range(len(group.state)):
                gap = backup(group.mdp, group.act(q, g)) - group.act(backup(group.mdp, q), g)
                worst = max(worst, float(np.abs(gap).max()))
    what = "max |T*(U Q) − U(T* Q)|, random Q"
    return Row("backup-commutes", "lem:commute_T_U", what, "at most", 0.0, worst, 1e-9)


def fixed_point(quick: bool, average: Any = None) -> Row:
    """Equivariance residual of the limit of Q <- mean_g U_g(T* Q) and its distance from Q*."""
    group = Automorphisms(probes.known_d4())
    average = group.average if average is None else average
    q = np.random.default_rng(1).normal(size=group.mdp.successors.shape[:2])
    for _ in range(200):
        q = average(backup(group.mdp, q))
    best = np.asarray(optimal_q(group.mdp, DISCOUNT), np.float64)
    worst = max(np.abs(group.act(q, g) - q).max() for g in range(len(group.state)))
    what = "|limit − Q*| + equivariance residual of averaged value iteration"
    measured = float(worst + np.abs(q - best).max())
    return Row(
        "fixed-point-equivariant", "thm:eq-consistency", what, "at most", 0.0, measured, 1e-4
    )


def amplification(quick: bool, average: Any = reynolds) -> Row:
    """max over ρ of |variance ratio · (1 + (K − 1)ρ) − 1|: a share ρ of a batch is seen in the
    K = 8 views of D4 with independent noise, and every view counts alike."""
    size, batch, repeats = 5, 64, 300 if quick else 3000
    vocabulary = vocabulary_kinds.dihedral((size, size, 3))
    relabel = Automorphisms(probes.known_d4()).relabel
    group = from_elements(vocabulary, relabel)
    corner = jnp.zeros((size, size, 3), jnp.uint8).at[0, 1, 2].set(1)

    def noisy(noise: Any) -> Any:
        """Estimates whose error at each view is its own, averaged over the views."""

        def estimate(observation: Any) -> Any:
            cell = jnp.argmax(observation[..., 2].reshape(-1))
            return noise[cell]

        return average(estimate, group)(corner)[0]

    keys = jax.random.split(jax.random.key(0), repeats)
    draws = jax.vmap(lambda k: jax.random.normal(k, (size * size, 4)))(keys)
    shared = np.asarray(jax.jit(jax.vmap(noisy))(draws), np.float64)
    plain = np.random.default_rng(2).normal(size=(repeats * 8, batch))
    worst = 0.0
    for share in (0.25, 0.5, 1.0):
        covered = int(share * batch)
        seen = np.random.default_rng(3).choice(shared, (len(plain), covered))
        # every view counts alike: a covered sample is eight views, the others one
        total = 8 * seen.sum(axis=1) + plain[:, covered:].sum(axis=1)
        ratio = np.var(total / (8 * covered + batch - covered)) / np.var(plain.mean(axis=1))
        worst = max(worst, abs(ratio * (1 + 7 * share) - 1))
    what = "max over ρ of |variance ratio · (1 + (K−1)ρ) − 1|, independent views"
    return Row("sample-amplification", "thm:amp", what, "equal", 0.0, float(worst), 0.15)


def _noisy_bank(scale: float) -> tuple[Any, Any]:
    """C4 as rotations of the plane in six dimensions, disturbed."""
    draw = np.random.default_rng(4)
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    transforms = []
    for k in range(4):
        matrix = np.eye(6)
        matrix[:2, :2] = np.linalg.matrix_power(turn, k)
        matrix[2:4, 2:4] = np.linalg.matrix_power(turn, 2 * k)
        transforms.append(matrix + scale * draw.normal(size=(6, 6)))
    relabel = np.stack([(np.arange(4) + k) % 4 for k in range(4)])
    soft = np.asarray(permutation_matrix(jnp.asarray(relabel)))
    soft = soft + scale * draw.random(soft.shape)
    return jnp.asarray(np.stack(transforms), jnp.float32), jnp.asarray(soft, jnp.float32)


def closure(quick: bool, operator: Any = close_group) -> Row:
    """Largest of the orthogonality defect and the mean closure residuals r_T, r_Π after three
    projection–closure–alignment cycles on a disturbed C4."""
    transforms, permutations = _noisy_bank(0.05)
    cycle = jax.jit(operator)
    for _ in range(3):
        closed = cycle(transforms, permutations)
        transforms, permutations = closed.transforms, closed.permutations
    gram = jnp.einsum("kij,kil->kjl", transforms, transforms) - jnp.eye(6)
    stats = closed.stats
    worst = max(
        float(jnp.abs(gram).max()),
        float(stats.residual_transform[-1]),
        float(stats.residual_permutation[-1]),
        1.0 - float(stats.enforced),
    )
    what = "orthogonality defect and closure residuals after three cycles"
    return Row(
        "closure-residuals", "thm:closure-consistency-full", what, "at most", 0.0, worst, 1e-3
    )


def identifiable(quick: bool, find: Any = discover) -> Row:
    """Share of planted elements that are certified with their relabelling, less the share of
    false ones, in 3000 random transitions of C4 (and D4)."""
    names = ("C4",) if quick else ("C4", "D4")
    score = []
    for probe in (p for p in planted() if p.name in names):
        vocabulary = getattr(vocabulary_kinds, probe.vocabulary)(*probe.arguments)
        found = find(Evidence(*play(probe, 0, probe.budget)), vocabulary, probe.num_actions)
        named = {vocabulary.names[g]: row for g, row in found.relabellings().items()}
        right = sum(named.get(name) == row for name, row in probe.truth.items())
        false = len(set(named) - set(probe.truth))
        score.append((right - false) / len(probe.truth))
    what = "share of a planted group that is recovered, less false elements"
    return Row("group-identified", "thm:ident", what, "equal", 1.0, float(np.mean(score)), 0.0)
