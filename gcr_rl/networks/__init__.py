"""Encoders and heads; no losses."""

from gcr_rl.networks.contrastive import Contrast, bilinear_logits, contrast_logits, momentum_step
from gcr_rl.networks.convolutional import make_convolutional
from gcr_rl.networks.dueling import make_head
from gcr_rl.networks.equivariant import SignNetwork
from gcr_rl.networks.exchangeable import ExchangeableNetwork
from gcr_rl.networks.group_convolution import SquareNetwork, SquareSymmetry
from gcr_rl.networks.noisy import (
    NoisyLinear,
    factors_of,
    noise_size,
    realise,
    realise_by_key,
    shaken,
)
from gcr_rl.networks.value import ObservationSpec, QNetwork, make_q_network

__all__ = [
    "Contrast",
    "ExchangeableNetwork",
    "NoisyLinear",
    "ObservationSpec",
    "QNetwork",
    "SignNetwork",
    "SquareNetwork",
    "SquareSymmetry",
    "bilinear_logits",
    "contrast_logits",
    "factors_of",
    "make_convolutional",
    "make_head",
    "make_q_network",
    "momentum_step",
    "noise_size",
    "realise",
    "realise_by_key",
    "shaken",
]
