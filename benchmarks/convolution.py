"""Convolutions as products of matrices against XLA's own: one gradient of every encoder.

The two run alternately in one process; the figure is the ratio of their medians. On a processor
one core is used.

    python benchmarks/convolution.py [--seeds 1 4] [--batch 32] [--out FILE]
"""

import argparse
import json
import os
import platform
import statistics
import time
from contextlib import contextmanager
from pathlib import Path

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import equinox as eqx
import jax

from gcr_rl.networks import convolution
from gcr_rl.networks.convolutional import ImpalaCNN, MinAtarCNN, NatureCNN
from gcr_rl.networks.encoders import CNNEncoder

STEPS, REPEATS = 4, 3
RESULTS = Path(__file__).parent / "results" / "convolution.json"
CASES = {
    "MinAtar, 4 channels": (MinAtarCNN, (10, 10, 4)),
    "MinAtar, 10 channels": (MinAtarCNN, (10, 10, 10)),
    "Two layers, 13 x 13": (
        lambda shape, key: CNNEncoder(shape, (32, 32), (1, 2), (128,), key=key),
        (13, 13, 5),
    ),
    "IMPALA, 13 x 13": (ImpalaCNN, (13, 13, 5)),
    "Nature, 84 x 84": (NatureCNN, (84, 84, 4)),
    "IMPALA, 84 x 84": (ImpalaCNN, (84, 84, 4)),
}


def xla(x, kernels, stride=1, padding=0):
    """What ``convolve`` computes, by XLA."""
    return jax.lax.conv_general_dilated(
        x[None], kernels, (stride, stride), ((padding, padding), (padding, padding))
    )[0]


@contextmanager
def using(function):
    """Every layer convolves with ``function`` while its program is built."""
    ours, convolution.convolve = convolution.convolve, function
    try:
        yield
    finally:
        convolution.convolve = ours


def program(function, make, shape, seeds, batch):
    """A compiled run of STEPS gradient steps, each seed with its own network."""
    key = jax.random.key(0)
    networks = eqx.filter_vmap(lambda k: make(shape, key=k))(jax.random.split(key, seeds))
    arrays, rest = eqx.partition(networks, eqx.is_array)
    pictures = jax.random.normal(key, (seeds, batch, *shape))

    def loss(network, x):
        return (jax.vmap(network)(x).sum(-1) ** 2).mean()

    def step(arrays, _):
        gradient = eqx.filter_vmap(eqx.filter_grad(loss))(eqx.combine(arrays, rest), pictures)
        gradient = eqx.filter(gradient, eqx.is_array)
        return jax.tree.map(lambda a, b: a - 1e-6 * b, arrays, gradient), None

    with using(function):
        run = jax.jit(lambda a: jax.lax.scan(step, a, None, length=STEPS)[0])
        jax.block_until_ready(run(arrays))
    return lambda: jax.block_until_ready(run(arrays))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for name, (make, shape) in CASES.items():
        for seeds in options.seeds:
            runs = {
                side: program(function, make, shape, seeds, options.batch)
                for side, function in (("ours", convolution.convolve), ("xla", xla))
            }
            times = {side: [] for side in runs}
            for _ in range(REPEATS):
                for side, run in runs.items():
                    start = time.perf_counter()
                    run()
                    times[side].append(time.perf_counter() - start)
            ratio = statistics.median(times["xla"]) / statistics.median(times["ours"])
            rows.append({"encoder": name, "seeds": seeds, "batch": options.batch, "ratio": ratio})
            print(f"{name:22} {seeds:3} seeds: XLA's convolution takes {ratio:5.1f} x", flush=True)
    device = jax.devices()[0]
    where = device.device_kind if device.platform != "cpu" else f"cpu, {platform.machine()}"
    options.out.write_text(
        json.dumps({"device": where, "jax": jax.__version__, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
