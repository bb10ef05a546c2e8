#!/usr/bin/env bash
# The whole way on a small scale: shards, a trained model, its plot, some text, an export.
#   scripts/demo.sh target/release/atpm-train
# Running it again goes on from what is there.
set -euo pipefail
binary=$(realpath "$1")
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*" >&2; }

say "shards of generated English → data/demo"
"$binary" data demo --out data/demo
say "training configs/demo.toml → runs/demo"
"$binary" --config configs/demo.toml --resume auto
say "the loss as a picture"
"$binary" plot runs/demo
say "a sample"
"$binary" generate --model runs/demo --prompt "Ada lives in" --max-tokens 60
say "the model as a Hugging Face folder"
rm -rf runs/demo/export
"$binary" export --checkpoint runs/demo --out runs/demo/export

cat >&2 <<'DONE'

Where everything is:
  data/demo/              parquet shards: what was trained on
  runs/demo/metrics.jsonl one record a step (docs/metrics.md)
  runs/demo/loss.svg      the picture, and loss.png
  runs/demo/checkpoints/  to go on from: atpm-train --config configs/demo.toml --resume auto
  runs/demo/export/       config.json, model.safetensors, tokenizer files
DONE
