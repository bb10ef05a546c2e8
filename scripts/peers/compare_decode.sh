#!/usr/bin/env bash
# Decodes with the same model here and in PyTorch, one after the other, and prints the ratio.
#   scripts/peers/compare_decode.sh target/release/atpm-train [--rows 8 --d 512 …]
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
source "$(dirname "$0")/frame.sh"

ours=$("$binary" bench --threads "$threads" decode --after 0 --json "$@")
# The one point that was measured.
ours=$("$python" -c 'import json, sys; run = json.load(sys.stdin); print(json.dumps(run | run["points"][0]))' <<< "$ours")
peer=$("$python" "$here/torch_decode.py" --threads "$threads" "$@")
beside "$ours" "$peer"
