"""What the certificate certifies, and when: planted groups, traps, and three tasks.

Random play, default thresholds. Every sample is judged at several lengths, as an agent would on
its schedule; ``first`` is the length from which on everything true is certified at every later
length, ``false`` counts certificates of untrue elements (or of true ones with a wrong
relabelling) at any length. Provisional certificates are counted apart. In seeds ``without_events``
no reward or end was seen, and nothing can be more than provisional.

    python benchmarks/certificate.py [--json FILE] [--markdown FILE] [--only WORD]
                                     [--seeds N] [--first-seed N] [--jobs N]

Thresholds were chosen on seeds below 1000; the reported ones start there.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcr_rl import envs
from gcr_rl.envs import dihedral
from gcr_rl.envs.probes_symmetry import planted, play, traps
from gcr_rl.envs.simulator import make_simulator
from gcr_rl.symmetry import (
    CertificateSettings,
    Evidence,
    Vocabulary,
    describe,
    discover,
    generate,
    vocabulary_kinds,
)

TOLERATED = 0.1
"""Perturbations of an action up to about this share may be certified, and are counted apart."""


class Case(NamedTuple):
    name: str
    sample: Callable[[int], Evidence]
    vocabulary: Vocabulary
    num_actions: int
    truth: dict[int, list[int]]
    lengths: tuple[int, ...]
    seeds: int


def random_play(name: str, count: int, **options: Any) -> Callable[[int], Evidence]:
    """A jitted collector of uniformly random play: seed -> Evidence."""
    simulator = make_simulator(*envs.make(name, **options))

    def step(carry: Any, key: Any) -> Any:
        state, observation, episode = carry
        act, move, restart = jax.random.split(key, 3)
        action = jax.random.randint(act, (), 0, simulator.num_actions)
        after = simulator.step(move, state, action)
        done = after.terminated | after.truncated
        fresh = simulator.reset(restart)
        state, following = jax.tree.map(
            lambda a, b: jnp.where(done, a, b), fresh, (after.state, after.observation)
        )
        row = Evidence(observation, action, after.reward, after.observation, after.terminated,
                       after.truncated, episode)  # fmt: skip
        return (state, following, episode + done), row

    @jax.jit
    def collect(key: Any) -> Evidence:
        start, rest = jax.random.split(key)
        carry = (*simulator.reset(start), jnp.int32(0))
        return jax.lax.scan(step, carry, jax.random.split(rest, count))[1]

    return lambda seed: Evidence(*(np.asarray(part) for part in collect(jax.random.key(seed))))


def probe_cases(seeds: int) -> list[Case]:
    found = []
    for role, probes in (("group", planted()), ("trap", traps())):
        for probe in probes:
            vocabulary = getattr(vocabulary_kinds, probe.vocabulary)(*probe.arguments)
            truth = {vocabulary.index(name): row for name, row in probe.truth.items()}
            lengths = tuple(
                n for n in (500, 1000, 2000, 3000, 4000, 6000, 12_000) if n <= probe.budget
            )

            def sample(seed: int, probe: Any = probe) -> Evidence:
                return Evidence(*play(probe, seed, probe.budget))

            name = f"{role}: {probe.name}"
            found.append(Case(name, sample, vocabulary, probe.num_actions, truth, lengths, seeds))
    return found


def task_cases(seeds: int) -> list[Case]:
    grid = vocabulary_kinds.dihedral((19, 19, 3))
    turned = {g: dihedral.relabelling(g).tolist() for g in range(1, 8)}
    lengths = (250, 500, 1000, 2000, 3000)
    tiles = vocabulary_kinds.tile_swaps((21, 21, 3), 3)
    assert tiles.swaps is not None
    swaps = {}
    for g, (first, second) in enumerate(tiles.swaps[1:] - 21, start=1):
        if 0 <= first < 6 and 0 <= second < 6:  # row 3 of 7 tiles, columns 0 to 5
            row = np.arange(6)
            row[[first, second]] = second, first
            swaps[g] = row.tolist()

    def slipping(share: float) -> Case:
        sample = random_play("RotMirrorGrid", 6000, p_asym=0.3, epsilon=share / 0.3)
        role = "RotMirrorGrid, slip" if share > TOLERATED else "near-symmetry: slip"
        return Case(f"{role} {share}", sample, grid, 4, {}, (*lengths, 6000), seeds)

    buttons = random_play("ButtonPermutation", 20_000)
    others = {g: row for g, row in swaps.items() if row[-1] == len(row) - 1}

    def odd_button(seed: int) -> Evidence:
        """The last button costs twice as much when it is wrong."""
        evidence = buttons(seed)
        dear = (evidence.action == 5) & (evidence.reward < 0)
        return evidence._replace(reward=np.where(dear, 2 * evidence.reward, evidence.reward))

    play_grid = random_play("RotMirrorGrid", 3000)
    return [
        Case("RotMirrorGrid", play_grid, grid, 4, turned, lengths, seeds),
        Case("RotMirrorGrid, more seeds", play_grid, grid, 4, turned, lengths, 4 * seeds),
        *(slipping(share) for share in (0.03, 0.06, 0.15)),
        Case("CartPole", random_play("CartPole", 3000), vocabulary_kinds.sign_flips(4), 2,
             {1: [1, 0]}, lengths[1:], seeds),
        Case("ButtonPermutation", buttons, tiles, 6, swaps,
             (4000, 5000, 6000, 8000, 10_000, 15_000, 20_000), seeds),
        Case("ButtonPermutation, odd button", odd_button, tiles, 6, others,
             (4000, 5000, 6000, 8000, 10_000), seeds),
    ]  # fmt: skip


def judge(case: Case, seed: int) -> dict[str, Any]:
    """One seed at every length."""
    evidence = case.sample(seed)
    row: dict[str, Any] = {"seed": seed, "lengths": [], "seconds": 0.0}
    for length in case.lengths:
        start = time.process_time()
        found = discover(
            Evidence(*(part[:length] for part in evidence)), case.vocabulary, case.num_actions,
            key=jax.random.key(seed),
        )  # fmt: skip
        row["seconds"] = time.process_time() - start
        certified = found.relabellings(provisional=False)
        accepted = found.relabellings(provisional=True)
        row["lengths"].append(
            {
                "length": length,
                "certified": sum(certified.get(g) == r for g, r in case.truth.items()),
                "accepted": sum(accepted.get(g) == r for g, r in case.truth.items()),
                "false": sum(case.truth.get(g) != r for g, r in certified.items()),
                "false_accepted": sum(case.truth.get(g) != r for g, r in accepted.items()),
                "events": found.events,
            }
        )
    if 0 < len(case.truth) <= 8 and len(certified) == len(case.truth):
        row["group"] = describe(generate(case.vocabulary, certified, case.num_actions))
    return row


def first(row: dict[str, Any], field: str, wanted: int) -> int | None:
    """The length from which on ``field`` is complete."""
    found = None
    for entry in row["lengths"]:
        found = (found or entry["length"]) if entry[field] == wanted else None
    return found


def summarise(case: Case, rows: list[dict[str, Any]]) -> dict[str, Any]:
    wanted = len(case.truth)
    complete = [first(row, "certified", wanted) for row in rows]
    accepted = [first(row, "accepted", wanted) for row in rows]
    known = [n for n in complete if n is not None]
    early = [n for n in accepted if n is not None]
    return {
        "case": case.name,
        "seeds": len(rows),
        "true_elements": wanted,
        "candidates": case.vocabulary.size - 1,
        "complete_seeds": len(known) if wanted else None,
        "median_first": float(np.median(known)) if known and wanted else None,
        "worst_first": max(known) if known and wanted else None,
        "accepted_seeds": len(early) if wanted else None,
        "worst_accepted": max(early) if early and wanted else None,
        "without_events": sum(row["lengths"][-1]["events"] == 0 for row in rows),
        "false": sum(entry["false"] for row in rows for entry in row["lengths"]),
        "false_provisional": sum(
            entry["false_accepted"] - entry["false"] for row in rows for entry in row["lengths"]
        ),
        "untrue_at_last_length": float(np.mean([row["lengths"][-1]["false"] for row in rows])),
        "last_length": case.lengths[-1],
        "group": sorted({row["group"] for row in rows if "group" in row}),
        "cpu_seconds_last": float(np.median([row["seconds"] for row in rows])),
    }


def markdown(summaries: list[dict[str, Any]]) -> str:
    head = (
        "| case | seeds | true / candidates | all certified | within (median, worst) |"
        " with provisional, within | false | false provisional | group | CPU s |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
    )
    lines = []
    for s in summaries:
        whole = "–" if s["complete_seeds"] is None else f"{s['complete_seeds']}/{s['seeds']}"
        within = (
            "–" if s["median_first"] is None else f"{s['median_first']:.0f}, {s['worst_first']}"
        )
        early = (
            "–"
            if not s["accepted_seeds"]
            else f"{s['accepted_seeds']}/{s['seeds']}, {s['worst_accepted']}"
        )
        untrue = str(s["false"])
        if s["case"].startswith("near-symmetry"):
            untrue = f"{s['untrue_at_last_length']:.1f} a seed at the last length"
        lines.append(
            f"| {s['case']} | {s['seeds']} | {s['true_elements']} / {s['candidates']} | {whole} |"
            f" {within} | {early} | {untrue} | {s['false_provisional']} |"
            f" {', '.join(s['group']) or '–'} | {s['cpu_seconds_last']:.1f} |"
        )
    return head + "\n".join(lines) + "\n"


def all_cases(seeds: int | None) -> dict[str, Case]:
    cases = [*task_cases(seeds or 16), *probe_cases(seeds or 20)]
    return {case.name: case for case in cases}


def run(name: str, seeds: int | None, start: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One case with all its seeds: (summary, every seed)."""
    case = all_cases(seeds)[name]
    rows = [judge(case, seed) for seed in range(start, start + case.seeds)]
    return summarise(case, rows), {"case": name, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="every seed, settings and command")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names = [name for name in all_cases(options.seeds) if options.only in name]
    found = []
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        sizes, starts = [options.seeds] * len(names), [options.first_seed] * len(names)
        for summary, rows in pool.map(run, names, sizes, starts):
            found.append((summary, rows))
            print(json.dumps(summary), flush=True)
            summaries = [one for one, _ in found]
            if options.json:
                data = {
                    "command": " ".join(["python benchmarks/certificate.py", *sys.argv[1:]]),
                    "settings": asdict(CertificateSettings()),
                    "summary": summaries,
                    "seeds": [one for _, one in found],
                }
                options.json.write_text(json.dumps(data, indent=1) + "\n")
            if options.markdown:
                options.markdown.write_text(markdown(summaries))


if __name__ == "__main__":
    main()
