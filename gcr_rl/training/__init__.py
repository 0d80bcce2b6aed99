"""Loops and run folders: the only writers of run files."""

from gcr_rl.training.loading import Run, evaluate, load, play
from gcr_rl.training.runner import Interrupted, resume, train

__all__ = ["Interrupted", "Run", "evaluate", "load", "play", "resume", "train"]
