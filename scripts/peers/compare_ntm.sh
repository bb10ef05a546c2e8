#!/usr/bin/env bash
# Times a training step of the same Neural Turing machine here and in PyTorch, one after the other, and prints the ratio
# and both peaks of memory.
#   scripts/peers/compare_ntm.sh target/release/atpm-train [--rows 16 --size 20 …]
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$1
shift
python=$("$here/install.sh")
threads=$(nproc)

ours=$("$binary" bench --threads "$threads" ntm --json "$@")
peer=$("$python" "$here/torch_ntm.py" --threads "$threads" "$@")
"$python" - "$ours" "$peer" <<'PYTHON'
import json, sys

ours, peer = map(json.loads, sys.argv[1:])
for name, run in [("atpm-train", ours), (peer["peer"], peer)]:
    print(
        f"{name:32} {run['step_ms']:10.2f} ms a step {run['peak_rss_bytes'] / 1e6:10.0f} MB at most"
        f" {run['params']:10} parameters  loss {run['loss']:.3f}"
    )
memory = ours["peak_rss_bytes"] / peer["peak_rss_bytes"]
print(f"{'times as fast':32} {peer['step_ms'] / ours['step_ms']:10.2f} {'memory':>16} {memory:12.2f}")
PYTHON
