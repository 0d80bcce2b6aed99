"""A third-party agent trains on the registered environments as they are."""

import gymnasium
import pytest

from gcr_rl.envs import TASKS
from gcr_rl.envs.adapters import register

pytestmark = pytest.mark.foreign
register()


@pytest.mark.parametrize("name", TASKS)
def test_dqn_trains(name):
    baselines = pytest.importorskip(
        "stable_baselines3", reason="stable-baselines3 is missing: pip install 'gcr-rl[bench]'"
    )
    agent = baselines.DQN(
        "MlpPolicy",
        gymnasium.make(f"gcr_rl/{name}-v0", horizon=min(TASKS[name].options["horizon"], 1_000)),
        learning_starts=100,
        buffer_size=2_000,
        seed=0,
    )
    before = {key: value.clone() for key, value in agent.policy.state_dict().items()}
    agent.learn(2_000)
    assert agent.num_timesteps == 2_000
    after = agent.policy.state_dict()
    assert any((before[key] != after[key]).any() for key in before)
    assert len(agent.ep_info_buffer) > 0
