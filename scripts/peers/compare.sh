#!/usr/bin/env bash
# Times the same training step here and in PyTorch, one after the other, and prints the ratio.
#   scripts/peers/compare.sh target/release/atpm-train [--d 512 --batch 4 … --dtype bf16]
# PEER_FLAGS are for PyTorch alone, such as --compile (which takes it minutes before the first step).
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$1
shift

if [ -z "${PEER_PYTHON:-}" ]; then
  "$here/install.sh"
  PEER_PYTHON=$here/../../target/peers/bin/python
fi
threads=$(nproc)

"$binary" bench --threads "$threads" step "$@"
echo
ours=$("$binary" bench --threads "$threads" step --no-ops --json "$@")
peer=$("$PEER_PYTHON" "$here/torch_step.py" --threads "$threads" "$@" ${PEER_FLAGS:-})
"$PEER_PYTHON" - "$ours" "$peer" <<'PYTHON'
import json, sys

ours, peer = map(json.loads, sys.argv[1:])
for name, run in [("atpm-train", ours), (peer["peer"], peer)]:
    print(f"{name:20} {run['tokens_per_s']:10.0f} tokens/s {run['params']:12} parameters  loss {run['loss']:.3f}")
print(f"{'ratio':20} {ours['tokens_per_s'] / peer['tokens_per_s']:10.2f}")
PYTHON
