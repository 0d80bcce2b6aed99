"""One thread and a compile cache for every test: two noisy cores are all we ask for."""

import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

from hypothesis import HealthCheck, settings

from gcr_rl.bench.cores import keep_to, shares_of_cores

if worker := os.environ.get("PYTEST_XDIST_WORKER"):  # gw0, gw1, ...: each on cores of its own
    shares = shares_of_cores(int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    keep_to(0, shares[int(worker.removeprefix("gw"))])

# The same examples every time: what fails here fails for whoever looks into it.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")
