"""What scripts/quality.sh asks of a folder: the settings of a model, one a line; or the runs' validation loss, as Markdown.

    python3 scripts/quality.py FOLDER MODEL
    python3 scripts/quality.py FOLDER
"""

import json
import re
import statistics
import sys
from pathlib import Path


def settings(folder, name):
    """What makes the model as large as the reference, from `atpm-train suite match --json`."""
    models = json.loads((folder / "sizes.json").read_text())["models"]
    found = [model for model in models if model["name"] == name]
    if not found or "settings" not in found[0]:
        sys.exit(f"no model `{name}` of this size; there are {', '.join(model['name'] for model in models)}")
    return found[0]["settings"]


def evaluations(run):
    """Bits per byte after each evaluated step."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {record["step"]: record["eval"]["bits_per_byte"] for record in records if record.get("eval")}


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def tables(folder):
    """Bits per byte over the steps, and at the end seed by seed."""
    known = [model["name"] for model in json.loads((folder / "sizes.json").read_text())["models"]]
    curves = {model: {} for model in known}
    for metrics in folder.glob("*/metrics.jsonl"):
        model, seed = re.fullmatch(r"(.+)-(\d+)", metrics.parent.name).groups()
        curves[model][int(seed)] = evaluations(metrics.parent)
    curves = {model: runs for model, runs in curves.items() if runs}
    seeds = sorted({seed for runs in curves.values() for seed in runs})
    steps = sorted(set.intersection(*(set(run) for runs in curves.values() for run in runs.values())))

    print("Validation bits per byte, mean over the seeds:\n")
    row("step", *curves)
    row(*["---"] * (1 + len(curves)))
    for step in steps:
        row(str(step), *(f"{statistics.mean(run[step] for run in runs.values()):.4f}" for runs in curves.values()))

    print(f"\nAfter step {steps[-1]}:\n")
    row("model", *(f"seed {seed}" for seed in seeds), "mean", "standard deviation")
    row(*["---"] * (3 + len(seeds)))
    for model, runs in curves.items():
        last = {seed: run[steps[-1]] for seed, run in runs.items()}
        spread = f"{statistics.stdev(last.values()):.4f}" if len(last) > 1 else ""
        each = (f"{last[seed]:.4f}" if seed in last else "" for seed in seeds)
        row(model, *each, f"{statistics.mean(last.values()):.4f}", spread)


folder = Path(sys.argv[1])
if len(sys.argv) > 2:
    print("\n".join(settings(folder, sys.argv[2])))
else:
    tables(folder)
