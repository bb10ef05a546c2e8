#!/usr/bin/env bash
# Trains small models of every kind, exports them, and compares the loss of every token with an independent
# implementation in PyTorch (scripts/check_export.py).
#     scripts/peers/check_export.sh target/release/atpm-train
# PEER_PYTHON names another interpreter with PyTorch than that of target/peers.
set -euo pipefail
bin=$(realpath "$1")
cd "$(dirname "$0")/../.."
python=$(scripts/peers/install.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$bin" data demo --out "$work/demo" --train-bytes 200000 --val-bytes 20000 > "$work/log"
check() { # NAME DTYPE SETTINGS…
  local name=$1 dtype=$2 settings=()
  shift 2
  for setting in "$@"; do settings+=(--set "$setting"); done
  echo "$name, $dtype:"
  "$bin" --config configs/debug.toml --set run_dir="$work/$name" --set data.train="$work/demo/train_*.parquet" \
    --set data.val="$work/demo/val_*.parquet" --set eval.every=0 --set train.steps=30 --set train.tokens=128 \
    "${settings[@]}" 2>> "$work/log" || { cat "$work/log"; exit 1; }
  "$bin" export --checkpoint "$work/$name" --out "$work/$name-export" --dtype "$dtype" > "$work/log"
  "$bin" eval --model "$work/$name-export" --data "$work/demo/val_*.parquet" --tokens 128 \
    --token-losses "$work/$name.safetensors" > "$work/log"
  "$python" scripts/check_export.py "$work/$name-export" --losses "$work/$name.safetensors"
}
check tied f32
check untied f32 model.tied=false
check half bf16
check gated-delta f32 model.rho=0 model.lambda=0 model.tie_beta=true
check plain f32 model.short_conv=0 model.query_norm=false model.rho=1 model.lambda=1
