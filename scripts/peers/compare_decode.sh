#!/usr/bin/env bash
# Decodes with the same model here and in PyTorch, one after the other, and prints the ratio.
#   scripts/peers/compare_decode.sh target/release/atpm-train [--rows 8 --d 512 …]
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$1
shift
python=$("$here/install.sh")
threads=$(nproc)

ours=$("$binary" bench --threads "$threads" decode --after 0 --json "$@")
peer=$("$python" "$here/torch_decode.py" --threads "$threads" "$@")
"$python" - "$ours" "$peer" <<'PYTHON'
import json, sys

ours, peer = map(json.loads, sys.argv[1:])
ours["tokens_per_s"] = ours["points"][0]["tokens_per_s"]
for name, run in [("atpm-train", ours), (peer["peer"], peer)]:
    print(f"{name:32} {run['tokens_per_s']:10.1f} tokens/s {run['rows']:6} rows {run['params']:12} parameters")
print(f"{'ratio':32} {ours['tokens_per_s'] / peer['tokens_per_s']:10.2f}")
PYTHON
