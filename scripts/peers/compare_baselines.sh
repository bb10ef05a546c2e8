#!/usr/bin/env bash
# Times a training step of the suite's LSTM and Transformer here and in PyTorch, one after the other, and prints the ratios:
# the widths that configs/suite/paper.toml matches, 64 rows of 100 tokens, f32.
#   scripts/peers/compare_baselines.sh target/release/atpm-train [STEPS that count, 20]
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
source "$(dirname "$0")/frame.sh"

models=$("$binary" suite --config "$here/../../configs/suite/paper.toml" --set 'models=["lstm", "transformer"]' --dry-run --json)
flags=$("$python" -c 'import json, sys
names = dict(kind="kind", d="d_model", layers="layers", heads="heads", mlp="mlp", vocab="vocab")
for model in (entry["model"] for entry in json.load(sys.stdin)["models"]):
    print(*(f"--{flag} {model[name]}" for flag, name in names.items()))' <<< "$models")
mapfile -t flags <<< "$flags"
for sizes in "${flags[@]}"; do
  read -ra sizes <<< "$sizes --batch 64 --seq 100 --steps ${1:-20}"
  ours=$("$binary" bench --threads "$threads" step --no-ops --json "${sizes[@]}")
  peer=$("$python" "$here/torch_step.py" --threads "$threads" "${sizes[@]}")
  beside "$ours" "$peer"
done
