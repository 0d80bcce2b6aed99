"""Agents: init / act / update. No loops, no files."""

from gcr_rl.agents.value import AgentState, ValueAgent, make_value_agent

__all__ = ["AgentState", "ValueAgent", "make_value_agent"]
