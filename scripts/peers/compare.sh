#!/usr/bin/env bash
# Times the same training step here and in PyTorch, one after the other, and prints the ratio and both peaks of memory.
#   scripts/peers/compare.sh target/release/atpm-train [--d 512 --batch 4 … --kind lstm --dtype bf16]
# PEER_FLAGS are for PyTorch alone: --compile (which takes it minutes before the first step), --kind transformer.
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
source "$(dirname "$0")/frame.sh"

"$binary" bench --threads "$threads" step "$@"
echo
ours=$("$binary" bench --threads "$threads" step --no-ops --json "$@")
peer=$("$python" "$here/torch_step.py" --threads "$threads" "$@" ${PEER_FLAGS:-})
beside "$ours" "$peer"
