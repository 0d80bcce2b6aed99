"""Loops and run folders: the only writers of run files."""

from gcr_rl.training.runner import Interrupted, resume, train

__all__ = ["Interrupted", "resume", "train"]
