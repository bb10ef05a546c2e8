#!/usr/bin/env bash
# Times the same training step here and in PyTorch, one after the other, and prints the ratio and both peaks of memory.
#   scripts/peers/compare.sh target/release/atpm-train [--d 512 --batch 4 … --dtype bf16]
# PEER_FLAGS are for PyTorch alone: --compile (which takes it minutes before the first step), --mixer attention.
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$1
shift
python=$("$here/install.sh")
threads=$(nproc)

"$binary" bench --threads "$threads" step "$@"
echo
ours=$("$binary" bench --threads "$threads" step --no-ops --json "$@")
peer=$("$python" "$here/torch_step.py" --threads "$threads" "$@" ${PEER_FLAGS:-})
"$python" - "$ours" "$peer" <<'PYTHON'
import json, sys

ours, peer = map(json.loads, sys.argv[1:])
for name, run in [("atpm-train", ours), (peer["peer"], peer)]:
    print(
        f"{name:40} {run['tokens_per_s']:10.0f} tokens/s {run['peak_rss_bytes'] / 1e9:8.2f} GB at most"
        f" {run['params']:12} parameters  loss {run['loss']:.3f}"
    )
speed = ours["tokens_per_s"] / peer["tokens_per_s"]
memory = ours["peak_rss_bytes"] / peer["peak_rss_bytes"]
print(f"{'ratio':40} {speed:10.2f}          {memory:8.2f}")
PYTHON
