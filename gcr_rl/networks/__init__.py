"""Encoders and heads; no losses."""

from gcr_rl.networks.value import ObservationSpec, QNetwork, make_q_network

__all__ = ["ObservationSpec", "QNetwork", "make_q_network"]
