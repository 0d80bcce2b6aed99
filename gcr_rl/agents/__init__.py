"""Agents: init / act / update. No loops, no files."""

from gcr_rl.agents.symmetric import vocabulary_of
from gcr_rl.agents.value import AgentState, Chore, ValueAgent, make_value_agent

__all__ = ["AgentState", "Chore", "ValueAgent", "make_value_agent", "vocabulary_of"]
