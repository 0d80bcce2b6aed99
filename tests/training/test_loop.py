"""What the compiler makes of the loop."""

import re

import jax
import jax.numpy as jnp
import pytest

from gcr_rl.presets import preset
from gcr_rl.training import loop, runner

CAPACITY = 1_013


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is a setting for processors")
@pytest.mark.parametrize("method", ["ddqn", "rainbow"])
def test_the_replay_is_not_copied(monkeypatch, method):
    chunks, make_chunk = [], loop.make_chunk
    monkeypatch.setattr(loop, "make_chunk", lambda *of: chunks.append(make_chunk(*of)) or chunks[0])
    small = {"seeds": (0, 1), "network.hidden": (8,), "replay.capacity": CAPACITY}
    program = runner.build_program(preset("Probe-TwoState", method, small))
    state, zero = program.init(jnp.arange(2)), jnp.int32(0)
    lowered = chunks[0].lower(state, zero, zero, True, program.agent.level(state.agent))
    holding = [line for line in lowered.compile().as_text().splitlines() if str(CAPACITY) in line]
    assert any("dynamic-update-slice" in line for line in holding)
    assert not [line for line in holding if re.search(rf"= \S*\b{CAPACITY}\b\S* copy\(", line)]
