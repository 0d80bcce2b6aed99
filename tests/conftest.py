"""One thread and a compile cache for every test: two noisy cores are all we ask for."""

import gc
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time: what fails here fails for whoever looks into it.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

# What JAX has traced and compiled stays, some gigabytes of it after a thousand tests, and the
# garbage collector would walk through all of it again and again: more than half of the time.
gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def what_is_left_is_kept():
    """Nothing that a module leaves behind is looked at again."""
    yield
    gc.collect()
    gc.freeze()
