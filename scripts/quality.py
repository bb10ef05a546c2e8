"""Prints the validation loss of the runs that scripts/quality.sh made, as Markdown tables.

    python3 scripts/quality.py FOLDER
"""

import json
import statistics
import sys
from pathlib import Path

MODELS = ["atpm", "gdn", "psm"]
SEEDS = [1, 2, 3]


def evaluations(run):
    """Bits per byte after each evaluated step."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {record["step"]: record["eval"]["bits_per_byte"] for record in records if record.get("eval")}


def row(*cells):
    print("| " + " | ".join(cells) + " |")


folder = Path(sys.argv[1])
curves = {model: [evaluations(folder / f"{model}-{seed}") for seed in SEEDS] for model in MODELS}
steps = sorted(curves["atpm"][0])

print("Validation bits per byte, mean over the seeds:\n")
row("step", *MODELS)
row(*["---"] * (1 + len(MODELS)))
for step in steps:
    row(str(step), *(f"{statistics.mean(run[step] for run in curves[model]):.4f}" for model in MODELS))

print("\nAfter the last step:\n")
row("model", *(f"seed {seed}" for seed in SEEDS), "mean", "standard deviation")
row(*["---"] * (3 + len(SEEDS)))
for model in MODELS:
    last = [run[steps[-1]] for run in curves[model]]
    row(model, *(f"{x:.4f}" for x in last), f"{statistics.mean(last):.4f}", f"{statistics.stdev(last):.4f}")
