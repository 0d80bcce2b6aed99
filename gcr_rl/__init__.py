"""Value learning that respects symmetry and order (GCR-RL), on JAX."""

from importlib import import_module
from typing import Any

from gcr_rl.envs.adapters import register as _register

__version__ = "0.1.0"

# The names below are imported when they are first used, so that `import gcr_rl` is cheap.
_LAZY = {
    "Config": "gcr_rl.config",
    "preset": "gcr_rl.presets",
    "InputError": "gcr_rl.errors",
    "RunFailed": "gcr_rl.errors",
    "Run": "gcr_rl.training",
    "train": "gcr_rl.training",
    "resume": "gcr_rl.training",
    "load": "gcr_rl.training",
    "evaluate": "gcr_rl.training",
    "play": "gcr_rl.training",
}

_register()  # gymnasium.make("gcr_rl/RotMirrorGrid-v0") works after `import gcr_rl`

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gcr_rl' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
