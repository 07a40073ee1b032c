"""Runs split-methods.toml with every method of split learning, on MNIST and Fashion-MNIST, four partitions and three seeds, and
prints the tables of docs/split-learning.md. Needs Python 3.9 or later and nothing else.

    cargo build --release
    target/release/selvedge data fetch mnist && target/release/selvedge data fetch fashion-mnist
    python3 examples/split_methods.py --out results/split               # half an hour or so on two cores
    python3 examples/split_methods.py --out results/split --ablations   # a quarter of an hour
    python3 examples/split_methods.py --out results/split --tune        # how the learning rates were chosen

Runs that are there already are not run again.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).parent
UNCUT = "uncut.toml"
SEEDS = [11, 12, 13]
TUNING_SEED = 100

DATA = {"MNIST": "mnist", "Fashion-MNIST": "fashion-mnist"}
PARTITIONS = {
    "IID": "{ kind = 'iid' }",
    "Dirichlet 0.5": "{ kind = 'dirichlet', alpha = 0.5 }",
    "Dirichlet 0.1": "{ kind = 'dirichlet', alpha = 0.1 }",
    "two shards": "{ kind = 'shards', per_client = 2 }",
}
# 60 steps in each of 10 rounds, or as many over all examples at once.
STEPS = ["rounds=10", "training.steps=60"]
EPOCH = ["rounds=1", "training={ epochs = 1, batch_size = 10, optimiser = { kind = 'sgd', learning_rate = 0.05 } }"]
METHODS = {
    # SplitFed v1 is FedAvg bit for bit; that its cut runs count no smashed data is the difference.
    "FedAvg": (None, STEPS),
    "sequential": ("{ kind = 'sequential' }", STEPS),
    "SplitFed v1": ("{ kind = 'splitfed-v1' }", STEPS),
    "SplitFed v2": ("{ kind = 'splitfed-v2' }", STEPS),
    "PSL": ("{ kind = 'parallel' }", STEPS),
    "EPSL (0.5)": ("{ kind = 'parallel', last_layer_aggregation = 0.5 }", STEPS),
    "GPSL": ("{ kind = 'parallel' }", EPOCH),
    "GAPSL-style": ("{ kind = 'gapsl' }", STEPS),
}
RATES = [0.02, 0.05, 0.1, 0.2]
# As --tune found them best.
CHOSEN = {name: 0.2 for name in METHODS} | {"sequential": 0.05, "GAPSL-style": 0.02}
ABLATIONS = {
    "PSL": "{ kind = 'parallel' }",
    "the defaults: λ 4, quantile 0.25, front, refresh 5, β 0.9, norm kept": "{ kind = 'gapsl' }",
    "λ 0.5": "{ kind = 'gapsl', lambda = 0.5 }",
    "λ 1": "{ kind = 'gapsl', lambda = 1.0 }",
    "λ 2": "{ kind = 'gapsl', lambda = 2.0 }",
    "λ 8": "{ kind = 'gapsl', lambda = 8.0 }",
    "λ 16": "{ kind = 'gapsl', lambda = 16.0 }",
    "λ 4, norm not kept": "{ kind = 'gapsl', towards = { kind = 'project', keep_norm = false } }",
    "λ 2, norm not kept": "{ kind = 'gapsl', lambda = 2.0, towards = { kind = 'project', keep_norm = false } }",
    "pcgrad": "{ kind = 'gapsl', towards = { kind = 'pcgrad' } }",
    "regulariser, λ 1": "{ kind = 'gapsl', lambda = 1.0, towards = { kind = 'regulariser' } }",
    "regulariser, λ 0.01": "{ kind = 'gapsl', lambda = 0.01, towards = { kind = 'regulariser' } }",
    "selector all": "{ kind = 'gapsl', selector = { kind = 'all' } }",
    "selector quantile 0.5": "{ kind = 'gapsl', selector = { kind = 'quantile', q = 0.5 } }",
    "selector quantile 0.75": "{ kind = 'gapsl', selector = { kind = 'quantile', q = 0.75 } }",
    "selector above-mean": "{ kind = 'gapsl', selector = { kind = 'above-mean' } }",
    "selector threshold 0.1": "{ kind = 'gapsl', selector = { kind = 'threshold', cosine = 0.1 } }",
    "selector cosine-to-mean 0.3": "{ kind = 'gapsl', selector = { kind = 'cosine-to-mean', cosine = 0.3 } }",
    "selector greedy-clique 0": "{ kind = 'gapsl', selector = { kind = 'greedy-clique', cosine = 0.0 } }",
    "placement back": "{ kind = 'gapsl', placement = 'back' }",
    "placement both": "{ kind = 'gapsl', placement = 'both' }",
    "placement back, λ 0.5": "{ kind = 'gapsl', lambda = 0.5, placement = 'back' }",
    "placement both, λ 0.5": "{ kind = 'gapsl', lambda = 0.5, placement = 'both' }",
    "refresh 1": "{ kind = 'gapsl', refresh = 1 }",
    "refresh 20": "{ kind = 'gapsl', refresh = 20 }",
    "β 0": "{ kind = 'gapsl', smoothing = 0.0 }",
    "β 0.99": "{ kind = 'gapsl', smoothing = 0.99 }",
    "sketch 16": "{ kind = 'gapsl', sketch = 16 }",
}


def run(arguments, job):
    """The last round of a run, which is made unless it is there, with the sums over its rounds."""
    name, method, steps, data, partition, rate, seed = job
    safe = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in f"{DATA[data]}-{partition}-{name}-{rate}-{seed}")
    out = arguments.out / safe
    if not (out / "summary.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        source = f"data={{ source = '{DATA[data]}'"
        if folder := getattr(arguments, DATA[data].replace("-", "_")):
            source += f", folder = '{folder.resolve()}'"
        settings = [source + " }", f"partition={PARTITIONS[partition]}", *steps, f"training.optimiser.learning_rate={rate}"]
        file = HERE / "split-methods.toml"
        if method:
            settings.append(f"split.method={method}")
        else:
            file = arguments.out / UNCUT
        if name == "GPSL":
            settings.append("split.batches=global")
        command = [arguments.selvedge, "simulate", file, "--quiet", "--workers", "1"]
        command += ["--seed", str(seed), "--out", out] + [part for set in settings for part in ("--set", set)]
        subprocess.run(command, check=True)
    rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    return rounds[-1] | {key: sum(round[key] for round in rounds) for key in ("bytes_up", "bytes_down", "seconds")}


def percent(values):
    """Mean and standard deviation; runs that have nothing to show, because they diverged, are counted."""
    lost = values.count(None)
    values = [value for value in values if value is not None]
    if lost:
        return f"{lost} of {lost + len(values)} diverged" + (f", else {100 * statistics.mean(values):.1f}" if values else "")
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):.1f}{spread}"


def columns(runs):
    """Accuracy on the test set, mean and least over the clients; on the clients' own classes; megabytes; seconds."""
    accuracy = percent([run["test_accuracy"] for run in runs])
    stitched = [run.get("stitched", []) for run in runs]
    least, own = "", ""
    if any(stitched):
        stitched = [clients for clients in stitched if clients]
        least = percent([min(client["accuracy"] for client in clients) for clients in stitched])
        own = percent([statistics.mean(client["own_accuracy"] for client in clients) for clients in stitched])
    megabytes = statistics.mean((run["bytes_up"] + run["bytes_down"]) / 1e6 for run in runs)
    return [accuracy, least, own, f"{megabytes:.0f}", f"{statistics.mean(run['seconds'] for run in runs):.0f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selvedge", default="target/release/selvedge", help="the program")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for the runs")
    sets = HERE.parent / "datasets"
    parser.add_argument("--mnist", type=pathlib.Path, default=sets / "mnist", help="the folder of MNIST's files")
    parser.add_argument("--fashion-mnist", type=pathlib.Path, default=sets / "fashion-mnist", help="that of Fashion-MNIST's")
    parser.add_argument("--at-once", type=int, default=2, help="runs at a time")
    parser.add_argument("--ablations", action="store_true", help="the settings of GAPSL-style, on Fashion-MNIST")
    parser.add_argument("--tune", action="store_true", help="try learning rates, on Fashion-MNIST")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    before, _, after = (HERE / "split-methods.toml").read_text().partition("[split]")
    (arguments.out / UNCUT).write_text(before + "[training]" + after.partition("[training]")[2])
    hard = ["Dirichlet 0.1", "two shards"]
    with ThreadPoolExecutor(arguments.at_once) as pool:
        all_of = lambda jobs: dict(zip(jobs, pool.map(lambda job: run(arguments, job), jobs)))
        fixed = lambda steps: tuple(steps)
        if arguments.tune:
            jobs = [
                (name, method, fixed(steps), "Fashion-MNIST", "Dirichlet 0.1", rate, TUNING_SEED)
                for name, (method, steps) in METHODS.items()
                for rate in RATES
            ]
            for job, last in all_of(jobs).items():
                print(f"{job[0]}, learning rate {job[5]}: {100 * last['test_accuracy']:.1f}", flush=True)
            return
        if arguments.ablations:
            jobs = [
                (name, method, fixed(STEPS), "Fashion-MNIST", partition, CHOSEN["GAPSL-style"], seed)
                for seed in SEEDS
                for name, method in ABLATIONS.items()
                for partition in hard
            ]
            runs = all_of(jobs)
            print("| | " + " | ".join(f"{partition}: mean | least" for partition in hard) + " |\n|---|---|---|---|---|")
            for name, method in ABLATIONS.items():
                cells = []
                for partition in hard:
                    of = [runs[job] for job in jobs if job[0] == name and job[4] == partition]
                    cells += columns(of)[:2]
                print(f"| {name} | " + " | ".join(cells) + " |")
            return
        jobs = [
            (name, method, fixed(steps), data, partition, CHOSEN[name], seed)
            for data in DATA
            for partition in PARTITIONS
            for seed in SEEDS
            for name, (method, steps) in METHODS.items()
        ]
        runs = all_of(jobs)
    for data in DATA:
        for partition in PARTITIONS:
            print(f"\n| {data}, {partition} | accuracy | least | own classes | MB | s |\n|---|---|---|---|---|---|")
            for name in METHODS:
                of = [runs[job] for job in jobs if (job[0], job[3], job[4]) == (name, data, partition)]
                print(f"| {name} | " + " | ".join(columns(of)) + " |")


if __name__ == "__main__":
    main()
