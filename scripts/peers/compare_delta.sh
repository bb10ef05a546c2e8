#!/usr/bin/env bash
# Times one layer's mixer here, and transformers' gated delta rule in PyTorch at the same size, forward and backward in
# f32, one after the other, and prints the ratio.
#   scripts/peers/compare_delta.sh target/release/atpm-train [--batch 4 --seq 1024 --heads 8 --K 64 --V 64: all of them]
# PEER_PYTHON names a Python that has PyTorch and transformers; without it, scripts/peers/install.sh makes one.
set -euo pipefail
source "$(dirname "$0")/frame.sh"
sizes=(--batch 4 --seq 1024 --heads 8 --K 64 --V 64)
[[ $# -eq 0 ]] || sizes=("$@")

# One layer of small projections: the step is only there for its table.
ours=$("$binary" bench --threads "$threads" step --json --layers 1 --steps 1 --S 64 --d 64 --mlp 64 --vocab 256 "${sizes[@]}")
ours=$("$python" -c 'import json, sys
mixer = [op["seconds"] for op in json.load(sys.stdin)["table"]["ops"] if op["op"] == "mixer"]
print(json.dumps({"seconds": sum(mixer)}))' <<< "$ours")
peer=$("$python" "$here/torch_delta.py" --threads "$threads" "${sizes[@]}")
beside "$ours" "$peer"
