"""Which rows hold a step back: a few dual steps, then Newton's rule.

The step d = argmin ½‖d − b‖² s.t. J d <= t is b − Jᵀy with y >= 0 and y_e = 0 where J d < t.
Accelerated projected ascent on y finds most of the set for the price of gathers; each round
after it solves the equations on the guess and revises it by y + (J d − t) > 0.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gcr_rl.manifold.constraints import Rows, along, transposed


def live(rows: Rows) -> Bool[Array, " rows"]:
    """Rows that a step can change."""
    return rows.mask & ((rows.at_upper != 0) | (rows.at_lower != 0))


def revise(
    rows: Rows,
    multipliers: Float[Array, " rows"],
    image: Float[Array, " rows"],
    target: Float[Array, " rows"],
) -> Bool[Array, " rows"]:
    """y + (J d − t) > 0: kept by a positive multiplier, added by a breach. Equalities stay."""
    pressed = multipliers + image - target > 0
    return live(rows) & (pressed if rows.equal is None else pressed | rows.equal)


def first_guess(
    rows: Rows, anchor: Float[Array, " slots"], target: Float[Array, " rows"], steps: int
) -> Bool[Array, " rows"]:
    """The set after ``steps`` accelerated, restarted ascent steps on
    max_{y>=0} yᵀ(J b − t) − ½‖Jᵀy‖², each row with its own step 1 / Σ_f |JJᵀ|_ef."""
    count = anchor.shape[0]
    usable = live(rows)
    absolute = rows._replace(at_upper=jnp.abs(rows.at_upper), at_lower=jnp.abs(rows.at_lower))
    row_sum = along(absolute, transposed(absolute, usable.astype(anchor.dtype), count))
    rate = jnp.where(usable, 1.0 / jnp.where(usable, row_sum, 1.0), 0.0)

    def ascend(_: int, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        previous, ahead, momentum = carry
        slope = along(rows, anchor - transposed(rows, ahead, count)) - target
        raised = ahead + rate * slope
        current = jnp.maximum(raised, 0.0)
        if rows.equal is not None:
            current = jnp.where(rows.equal, raised, current)
        change = current - previous
        momentum = jnp.where(jnp.sum(slope * change) < 0, 1.0, momentum)
        following = (1.0 + jnp.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        return current, current + (momentum - 1.0) / following * change, following

    zero = jnp.zeros_like(target)
    multipliers = zero
    if steps:
        start = (zero, zero, jnp.ones((), zero.dtype))
        multipliers = lax.fori_loop(0, steps, ascend, start)[0]
    image = along(rows, anchor - transposed(rows, multipliers, count))
    return revise(rows, multipliers, image, target)
