"""The numbers of a suite's finished jobs as one small data file, and the tests between methods.

    gcr bench grid --out STORE
    python benchmarks/suite_figures.py STORE grid-full --out benchmarks/results/suite_grid.json

Every row names the command and the commit that made it. Tests: ``--candidate`` against every
other method of the same task, options and budget, paired by seed (where one has more of them,
on those that both have), on the mean return over training: a two-sided sign-flip test, and
non-inferiority with a margin of 5 % of the distance between the random and the optimal return;
both corrected by Holm over the tests of a candidate.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from gcr_rl.bench.job import key_of
from gcr_rl.bench.store import Store
from gcr_rl.evaluation import metrics, statistics
from gcr_rl.report.summary import task_facts
from gcr_rl.training.run_folder import read_json, read_rows
from gcr_rl.training.summary import curve_of

MARGIN = 0.05
CONFIDENCE = 0.95


def late(rows, seeds, name):
    """``name`` of every seed over the last fifth of the evaluations; None where there is none."""
    by_seed = [[row[name] for row in rows if row["seed"] == seed] for seed in seeds]
    if any(value is None for values in by_seed for value in values):
        return None
    count = max(1, len(by_seed[0]) // 5)
    return np.array(by_seed, float)[:, -count:]


def figures(folder, label, commit, until=None):
    """One row: what was run, and what came out of it (up to step ``until``), seed by seed."""
    config = read_json(folder / "config.json", "run")
    provenance = read_json(folder / "provenance.json", "run")
    rows, seeds = evaluations(folder, until), config["seeds"]
    curve = curve_of(rows, seeds)
    budget = min(config["steps"], int(curve.steps[-1]))
    facts = task_facts(config["task"], config["env"])
    residual, value = late(rows, seeds, "bellman_residual"), late(rows, seeds, "start_value")
    row = {
        "suite": label,
        "task": config["task"],
        "env": config["env"],
        "method": config["method"],
        "steps": config["steps"],
        "until": until,
        "seeds": len(seeds),
        "first_seed": seeds[0],
        "key": folder.name,
        "commit": provenance["commit"] or commit,
        "command": provenance.get("command"),
        "config": config,
        "final": metrics.final_return(curve, budget).round(4).tolist(),
        "training": metrics.mean_training_return(curve, budget).round(4).tolist(),
        "residual": None if residual is None else residual.mean(axis=1).round(6).tolist(),
        "value_variance": None if value is None else value.var(axis=1).round(8).tolist(),
        "curve_steps": curve.steps.tolist(),
        "curve_mean": curve.returns.mean(axis=0).round(3).tolist(),
        "curve_worst": curve.returns.min(axis=0).round(3).tolist(),
        "curves": curve.returns.round(2).tolist(),
    }
    if facts.threshold is not None:
        reached = metrics.steps_to_threshold(curve, facts.threshold, budget)
        row |= {
            "threshold": facts.threshold,
            "to_threshold": reached.steps.tolist(),
            "reached": int(reached.reached.sum()),
            "mean_curve_reaches": first_above(
                curve.steps, curve.returns.mean(axis=0), facts.threshold
            ),
        }
    return row


def evaluations(folder, until):
    """The rows of a run's evaluations; with ``until`` no later ones."""
    rows = read_rows(folder / "evaluation.jsonl")
    return [row for row in rows if until is None or row["step"] <= until]


def complete(store, key, until):
    """Whether a job finished; with ``until``, whether every seed was evaluated at that step."""
    if until is None:
        return store.standing(key).status == "finished"
    folder = store.folder(key)
    if not (folder / "evaluation.jsonl").is_file():
        return False
    seeds = {row["seed"] for row in evaluations(folder, until) if row["step"] == until}
    return seeds == set(read_json(folder / "config.json", "run")["seeds"])


def first_above(steps, means, threshold):
    """The first evaluation at which the mean over seeds is at least ``threshold``; or None."""
    above = means >= threshold
    return int(steps[above.argmax()]) if above.any() else None


def group_of(row):
    """Rows with one of these are compared with each other."""
    options = json.dumps(row["env"], sort_keys=True)
    return (row["task"], options, row["steps"], row.get("until"))


def place_of(row):
    """What a new row takes the place of."""
    return group_of(row), row["method"], row["first_seed"], row.get("report")


def joined(rows):
    """Rows of one method that differ only in their seeds, which follow one another, as one row."""
    groups = defaultdict(list)
    for row in rows:
        groups[group_of(row), row["method"], settings_of(row)].append(row)
    return [whole(sorted(parts, key=lambda row: row["first_seed"])) for parts in groups.values()]


def settings_of(row):
    """The configuration without its seeds, as jobs are told apart by it."""
    return key_of(row["config"] | {"seeds": []})


def whole(parts):
    """One row of several; ``parts`` keeps what made each of them."""
    if len(parts) == 1:
        return parts[0]
    ends = [part["first_seed"] + part["seeds"] for part in parts]
    if ends[:-1] != [part["first_seed"] for part in parts[1:]]:
        raise SystemExit(f"{parts[0]['method']}: seeds that do not follow one another: {ends}")
    row = dict(parts[0])
    for name in ("final", "training", "residual", "value_variance", "to_threshold"):
        if row.get(name) is not None:
            row[name] = [value for part in parts for value in part[name]]
    sizes = [part["seeds"] for part in parts]
    means = np.average([part["curve_mean"] for part in parts], axis=0, weights=sizes)
    worst = np.min([part["curve_worst"] for part in parts], axis=0)
    row |= {"seeds": sum(sizes), "curve_mean": means.round(3).tolist()}
    row["curve_worst"] = worst.tolist()
    row["curves"] = [curve for part in parts for curve in part.get("curves", [])]
    if len(row["curves"]) < row["seeds"]:
        del row["curves"]
    if "threshold" in row:
        row["reached"] = sum(part["reached"] for part in parts)
        row["mean_curve_reaches"] = first_above(row["curve_steps"], means, row["threshold"])
    row["parts"] = [made for part in parts for made in parts_of(part)]
    return row


def parts_of(row):
    """What made a row: its own parts where it was joined before, else itself."""
    kept = ("key", "commit", "command", "first_seed", "seeds")
    return row.get("parts") or [{name: row[name] for name in kept}]


def by_seed(row, name):
    """Scores keyed by seed, as the paired tests want them."""
    return dict(enumerate(row[name], start=row["first_seed"]))


def paired(ours, other, name):
    """Both methods' scores on the seeds that both have."""
    first, second = by_seed(ours, name), by_seed(other, name)
    shared = sorted(first.keys() & second.keys())
    return {seed: first[seed] for seed in shared}, {seed: second[seed] for seed in shared}


def tests(rows, candidate):
    """The candidate against every other method of its group."""
    groups = defaultdict(list)
    for row in rows:
        groups[group_of(row)].append(row)
    found = []
    for members in groups.values():
        members.sort(key=lambda row: row.get("report") is not None)
        ours = next((row for row in members if row["method"] == candidate), None)
        for other in members if ours is not None else ():
            if other is not ours and paired(ours, other, "training")[0]:
                found.append(compared(ours, other))
    for name in ("p", "p_non_inferior", "p_residual", "p_variance"):
        chosen = [test for test in found if test.get(name) is not None]
        adjusted = statistics.holm([test[name] for test in chosen])
        for test, value in zip(chosen, adjusted, strict=True):
            test[f"{name}_holm"] = float(value)
    return found


def compared(ours, other):
    """All tests of one pair of methods, on the seeds that both have."""
    first, second = paired(ours, other, "training")
    result = statistics.paired_permutation_test(first, second, seed=0)
    facts = task_facts(ours["task"], ours["env"])
    test = {
        "task": ours["task"],
        "env": ours["env"],
        "steps": ours["steps"],
        "candidate": ours["method"],
        "other": other["method"],
        "other_report": other.get("report"),
        "seeds": len(first),
        "difference": result.difference,
        "p": result.p_value,
    }
    if facts.optimal_return is not None and facts.random_return is not None:
        margin = MARGIN * abs(facts.optimal_return - facts.random_return)
        bound = statistics.non_inferiority(
            first, second, margin=margin, seed=0, confidence=CONFIDENCE
        )
        test |= {"margin": margin, "lower": bound.lower_bound, "p_non_inferior": bound.p_value}
    for name, short in (("residual", "p_residual"), ("value_variance", "p_variance")):
        if ours[name] is not None and other[name] is not None:
            apart = statistics.paired_permutation_test(*paired(ours, other, name), seed=0)
            test |= {f"difference_{name}": apart.difference, short: apart.p_value}
    return test


def jobs_of(store, labels):
    """(label, key) of the jobs of these suites, or of all that the store holds."""
    if not labels:
        return [("", folder.name) for folder in sorted((store.root / "jobs").iterdir())]
    return [
        (label, job["key"])
        for label in labels
        for job in read_json(store.index_file(label), "store")["jobs"]
    ]


def reports_of(store):
    """The report of every job that a suite of the store names; None for the main one."""
    files = sorted((store.root / "suites").glob("*.json"))
    jobs = [job for file in files for job in read_json(file, "store")["jobs"]]
    return {job["key"]: None if job["report"] == "report" else job["report"] for job in jobs}


def main():
    """Read the store, write the file, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("labels", nargs="*", help="SUITE-SCALE, as in STORE/suites; else all jobs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--candidate", nargs="+", default=["gcr-hard"])
    parser.add_argument("--commit", help="where the runs could not know theirs (no git there)")
    parser.add_argument(
        "--until", type=int, help="look at all jobs up to this step, whether they finished or not"
    )
    parser.add_argument(
        "--with", dest="earlier", type=Path, nargs="*", default=[], metavar="FILE",
        help="files whose rows stay where the store has nothing for the same method, task and "
        "first seed; seeds that follow one another become one row",
    )  # fmt: skip
    options = parser.parse_args()
    store = Store(options.store)
    rows = [
        figures(store.folder(key), label, options.commit, options.until)
        for label, key in jobs_of(store, options.labels)
        if complete(store, key, options.until)
    ]
    earlier = [
        row
        for file in options.earlier
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]
    ]
    reports = reports_of(store)
    for row in rows + earlier:
        if row["key"] in reports:
            row["report"] = reports[row["key"]]
    measured = {place_of(row) for row in rows}
    rows = joined(rows + [row for row in earlier if place_of(row) not in measured])
    found = [test for candidate in options.candidate for test in tests(rows, candidate)]
    options.out.write_text(
        json.dumps({"about": __doc__.split("\n")[0], "tests": found, "rows": rows}) + "\n"
    )
    show(rows, found)


def show(rows, found):
    """Markdown tables."""
    print(
        "| task | options | method | steps | final | worst | training | mean reaches | residual |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for row in sorted(
        rows, key=lambda row: (row["task"], str(row["env"]), -np.mean(row["training"]))
    ):
        residual = "" if row["residual"] is None else f"{np.mean(row['residual']):.4f}"
        print(
            f"| {row['task']} | {row['env'] or ''} | {row['method']} | {row['steps']:,} "
            f"| {np.mean(row['final']):.2f} | {min(row['final']):.2f} "
            f"| {np.mean(row['training']):.2f} "
            f"| {row.get('mean_curve_reaches')} | {residual} |"
        )
    for test in found:
        print({name: value for name, value in test.items() if value is not None})


if __name__ == "__main__":
    main()
