#!/usr/bin/env bash
# Trains models of equal size on the same text and prints the tables of docs/results.md: ATPM, its Gated DeltaNet limit,
# a Transformer and an LSTM, three seeds each, unless MODELS (names of `atpm-train suite match`) and SEEDS say otherwise.
#   scripts/quality.sh target/release/atpm-train '../shared/corpus/train_*.parquet' '../shared/corpus/val_*.parquet' [FOLDER]
#   SEEDS=1 STEPS=200 MODELS='atpm psm' scripts/quality.sh …
# BY=flops makes FLOPs of training a token equal instead of parameters. About ten minutes of two cores a run of 400 steps;
# a run that is done is not repeated, one that was stopped goes on. Needs Python.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
binary=$1 train=$2 val=$3
folder=${4:-runs/quality}
read -ra models <<<"${MODELS:-atpm gdn transformer lstm}"
read -ra seeds <<<"${SEEDS:-1 2 3}"
steps=${STEPS:-400}

config=$repository/configs/tiny.toml
budget=(--set train.steps="$steps" --set schedule.warmup="$((steps / 10))" --set eval.every=50 --set eval.batches=64
  --set checkpoint.every="$steps")
mkdir -p "$folder"
"$binary" suite match --config "$config" --by "${BY:-params}" --json >"$folder/sizes.json"
for seed in "${seeds[@]}"; do
  for model in "${models[@]}"; do
    settings=$(python3 "$repository/scripts/quality.py" "$folder" "$model")
    size=()
    while read -r setting; do size+=(--set "$setting"); done <<<"$settings"
    "$binary" --config "$config" --resume auto "${budget[@]}" "${size[@]}" \
      --set seed="$seed" --set run_dir="$folder/$model-$seed" --set data.train="$train" --set data.val="$val"
  done
done
first=()
for model in "${models[@]}"; do first+=("$folder/$model-${seeds[0]}"); done
"$binary" plot --smooth 0.9 --title "The same text, models of one size (seed ${seeds[0]})" --out "$folder/quality.svg" \
  "${first[@]}"
python3 "$repository/scripts/quality.py" "$folder"
