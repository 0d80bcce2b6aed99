"""Value learning that respects symmetry and order (GCR-RL), on JAX."""

__version__ = "0.1.0"
