"""Runs sub-model-plans.toml with every plan and five seeds: an MLP on MNIST and Fashion-MNIST, a CNN on the latter. Prints the tables of
docs/sub-models.md and draws its pictures. Needs Python 3.9 or later and nothing else.

    cargo build --release
    target/release/selvedge data fetch mnist && target/release/selvedge data fetch fashion-mnist
    python3 examples/sub_model_plans.py --out results/plans             # an hour or so on two cores
    python3 examples/sub_model_plans.py --out results/plans --tune      # how scaler and learning rate were chosen

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
SEEDS = [1, 2, 3, 4, 5]
TUNING_SEED = 100


def partitioned(dealing, pairing="redrawn"):
    return f"{{ kind = 'partitioned', blocks = 4, dealing = '{dealing}', pairing = '{pairing}' }}"


PLANS = {
    "static": "{ kind = 'static' }",
    "rolling": "{ kind = 'rolling' }",
    "random": "{ kind = 'random' }",
    "with-replacement": partitioned("with-replacement"),
    "deck": partitioned("deck"),
    "latin-square": partitioned("latin-square"),
    "deck, fixed pairing": partitioned("deck", "fixed"),
    "full": "{ kind = 'full' }",
}

# Model: whether a plan's outputs are scaled, and its learning rate, as --tune found them best after 200 rounds. The ways of
# dealing the same blocks have the same: what the deck's best was.
CHOSEN = {
    "MLP": {
        "static": (False, 0.2),
        "rolling": (True, 0.05),
        "random": (True, 0.02),
        "with-replacement": (True, 0.05),
        "deck": (True, 0.05),
        "latin-square": (True, 0.05),
        "deck, fixed pairing": (True, 0.05),
        "full": (False, 0.2),
    },
    "CNN": {
        "static": (False, 0.1),
        "rolling": (True, 0.02),
        "random": (True, 0.02),
        "with-replacement": (True, 0.02),
        "deck": (True, 0.02),
        "latin-square": (True, 0.02),
        "deck, fixed pairing": (False, 0.05),
        "full": (False, 0.1),
    },
}
TRIED = {
    "MLP": [(True, 0.02), (True, 0.05), (False, 0.05), (False, 0.1), (False, 0.2)],
    "CNN": [(True, 0.01), (True, 0.02), (False, 0.02), (False, 0.05), (False, 0.1)],
}
MLP = "{ input = [1, 28, 28], layers = [{ kind = 'flatten' }, { kind = 'dense', units = 128 }, { kind = 'relu' }, { kind = 'dense', units = 10 }] }"
DATA = {"MNIST": "mnist", "Fashion-MNIST": "fashion-mnist"}
SETS = {"MLP": list(DATA), "CNN": ["Fashion-MNIST"]}


def run(arguments, job):
    """The evaluated rounds of a run, which is made unless it is there."""
    model, data, plan, scaler, rate, seed = job
    name = f"{model.lower()}-{DATA[data]}-{plan.replace(', ', '-').replace(' ', '-')}-{'scaled' if scaler else 'plain'}-{rate}-{seed}"
    out = arguments.out / name
    if not (out / "summary.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        source = f"data={{ source = '{DATA[data]}'"
        if folder := getattr(arguments, DATA[data].replace("-", "_")):
            source += f", folder = '{folder.resolve()}'"
        settings = [source + " }", f"sub_models.plan={PLANS[plan]}", f"training.optimiser.learning_rate={rate}"]
        settings.append(f"sub_models.scaler={'true' if scaler else 'false'}")
        if model == "MLP":
            settings.append(f"model={MLP}")
        if plan == "full":
            settings.append("sub_models.capacities=[]")
        command = [arguments.selvedge, "simulate", HERE / "sub-model-plans.toml", "--quiet", "--workers", "1"]
        command += ["--seed", str(seed), "--out", out] + [part for set in settings for part in ("--set", set)]
        subprocess.run(command, check=True)
    rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    return [round for round in rounds if round["test_accuracy"] is not None]


def spread(values):
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def table(results, model, data):
    """A row for each plan: accuracy after a quarter, half and all rounds, and the gap between training and test."""
    print(f"\n| {model}, {data} | after 50 rounds | after 100 | after 200 | gap after 200 | test loss | sent by a client |")
    print("|---|---|---|---|---|---|---|")
    for plan in PLANS:
        runs = [results[model, data, plan, seed] for seed in SEEDS]
        at = {n: [100 * next(r for r in run if r["round"] == n)["test_accuracy"] for run in runs] for n in (50, 100, 200)}
        gap = [100 * (run[-1]["training_accuracy"] - run[-1]["test_accuracy"]) for run in runs]
        loss = [run[-1]["test_loss"] for run in runs]
        sent = runs[0][-1]["bytes_up"] / runs[0][-1]["completed"] / 1000
        columns = [spread(at[n]) for n in (50, 100, 200)] + [spread(gap), f"{statistics.mean(loss):.2f}", f"{sent:.0f} kB"]
        print(f"| {plan} | " + " | ".join(columns) + " |")


def picture(results, model, path):
    """Mean accuracies with one standard deviation each way, as SVG."""
    colours = ["#64748b", "#a16207", "#c2410c", "#9333ea", "#1f6feb", "#0f8a5f", "#db2777", "#111827"]
    width, height, left, top = 860 // len(SETS[model]), 250, 46, 34
    parts = []
    for panel, data in enumerate(SETS[model]):
        means = {plan: [] for plan in PLANS}
        for plan in PLANS:
            for n in (50, 100, 150, 200):
                values = [100 * next(r for r in results[model, data, plan, s] if r["round"] == n)["test_accuracy"] for s in SEEDS]
                means[plan].append((n, statistics.mean(values), statistics.stdev(values)))
        low = 10 * (min(m for points in means.values() for _, m, _ in points) // 10)
        x = lambda n: panel * width + left + (n - 40) / 170 * (width - left - 14)
        y = lambda value: top + (100 - value) / (100 - low) * height
        parts.append(f'<text x="{x(125):.0f}" y="20" text-anchor="middle" font-weight="bold">{model}, {data}: test accuracy, %</text>')
        for value in range(int(low), 101, 10):
            parts.append(f'<line x1="{x(40):.0f}" x2="{x(210):.0f}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#d0d7de"/>')
            parts.append(f'<text x="{x(40) - 6:.0f}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>')
        for n in (50, 100, 150, 200):
            parts.append(f'<text x="{x(n):.0f}" y="{top + height + 18}" text-anchor="middle">{n}</text>')
        for at, (plan, points) in enumerate(means.items()):
            shift = 1.6 * (at - len(PLANS) / 2)
            line = " ".join(f"{x(n) + shift:.1f},{y(m):.1f}" for n, m, _ in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colours[at]}" stroke-width="2"/>')
            for n, m, s in points:
                parts.append(
                    f'<line x1="{x(n) + shift:.1f}" x2="{x(n) + shift:.1f}" y1="{y(min(100, m + s)):.1f}" '
                    f'y2="{y(max(low, m - s)):.1f}" stroke="{colours[at]}"/>'
                )
    for at, plan in enumerate(PLANS):
        column, row = at % 4, at // 4
        parts.append(f'<rect x="{60 + 205 * column}" y="{top + height + 34 + 20 * row}" width="12" height="12" fill="{colours[at]}"/>')
        parts.append(f'<text x="{78 + 205 * column}" y="{top + height + 44 + 20 * row}">{plan}</text>')
    total = top + height + 82
    wide = len(SETS[model]) * width
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {total}" font-family="sans-serif" font-size="12">'
        f'<rect width="{wide}" height="{total}" fill="white"/>' + "".join(parts) + "</svg>\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selvedge", default="target/release/selvedge", help="the program")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for the runs")
    parser.add_argument("--mnist", type=pathlib.Path, help="the folder of MNIST's files")
    parser.add_argument("--fashion-mnist", type=pathlib.Path, help="the folder of Fashion-MNIST's files")
    parser.add_argument("--pictures", type=pathlib.Path, help="the folder for the pictures")
    parser.add_argument("--model", choices=CHOSEN, help="only this model")
    parser.add_argument("--at-once", type=int, default=2, help="runs at a time")
    parser.add_argument("--tune", action="store_true", help="try scalers and learning rates, on Fashion-MNIST")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    models = [arguments.model] if arguments.model else list(CHOSEN)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        if arguments.tune:
            jobs = [(model, "Fashion-MNIST", plan, *tried, TUNING_SEED) for model in models for plan in PLANS for tried in TRIED[model]]
            for job, rounds in zip(jobs, pool.map(lambda job: run(arguments, job), jobs)):
                model, _, plan, scaler, rate, _ = job
                accuracies = ", ".join(f"{100 * round['test_accuracy']:.1f}" for round in rounds)
                print(f"{model}, {plan}, {'scaled' if scaler else 'plain'}, learning rate {rate}: {accuracies}", flush=True)
            return
        keys = [(model, data, plan, seed) for model in models for seed in SEEDS for data in SETS[model] for plan in PLANS]
        jobs = [(model, data, plan, *CHOSEN[model][plan], seed) for model, data, plan, seed in keys]
        rounds = dict(zip(keys, pool.map(lambda job: run(arguments, job), jobs)))
    for model in models:
        for data in SETS[model]:
            table(rounds, model, data)
        if arguments.pictures:
            picture(rounds, model, arguments.pictures / f"sub-model-plans-{model.lower()}.svg")


if __name__ == "__main__":
    main()
