#!/usr/bin/env bash
# Trains ATPM, its Gated DeltaNet limit and PSM on the same text, three seeds each, and prints the table of docs/results.md.
#   scripts/quality.sh target/release/atpm-train '../shared/corpus/train_*.parquet' '../shared/corpus/val_*.parquet' [FOLDER]
# About ten minutes of two cores a run; a run that is done is not repeated, one that was stopped goes on. Needs Python.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
binary=$1 train=$2 val=$3
folder=${4:-runs/quality}

budget=(--set train.steps=400 --set schedule.warmup=40 --set eval.every=50 --set eval.batches=64 --set checkpoint.every=400)
for seed in 1 2 3; do
  for model in atpm gdn psm; do
    case $model in
      atpm) pins=() ;;
      gdn) pins=(--set model.rho=0 --set model.lambda=0 --set model.tie_beta=true) ;;
      psm) pins=(--set model.rho=0 --set model.lambda=0) ;;
    esac
    "$binary" --config "$repository/configs/tiny.toml" --resume auto "${budget[@]}" "${pins[@]}" \
      --set seed="$seed" --set run_dir="$folder/$model-$seed" --set data.train="$train" --set data.val="$val"
  done
done
"$binary" plot --smooth 0.9 --title 'The same text, three memories (seed 1)' --out "$folder/quality.svg" \
  "$folder/atpm-1" "$folder/gdn-1" "$folder/psm-1"
python3 "$repository/scripts/quality.py" "$folder"
