#!/usr/bin/env bash
# Times one layer's mixer here, and transformers' gated delta rule in PyTorch at the same size, forward and backward in
# f32, one after the other, and prints the ratio.
#   scripts/peers/compare_delta.sh target/release/atpm-train [--batch 4 --seq 1024 --heads 8 --K 64 --V 64]
# PEER_PYTHON names a Python that has PyTorch and transformers; without it, scripts/peers/install.sh makes one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$1
shift
python=$("$here/install.sh")
threads=$(nproc)
sizes=(--batch 4 --seq 1024 --heads 8 --K 64 --V 64 "$@")

# One layer of small projections: the step is only there for its table.
ours=$("$binary" bench --threads "$threads" step --json --layers 1 --steps 1 --S 64 --d 64 --mlp 64 --vocab 256 "${sizes[@]}")
peer=$("$python" "$here/torch_delta.py" --threads "$threads" "${sizes[@]}")
"$python" - "$ours" "$peer" <<'PYTHON'
import json, sys

ours, peer = map(json.loads, sys.argv[1:])
seconds = sum(row["seconds"] for row in ours["table"]["ops"] if row["op"] == "mixer")
for name, time in [("atpm-train, mixer", seconds), (peer["peer"], peer["seconds"])]:
    print(f"{name:44} {1e3 * time:10.1f} ms forward and backward")
print(f"{'ratio':44} {peer['seconds'] / seconds:10.1f}")
PYTHON
