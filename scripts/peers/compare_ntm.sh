#!/usr/bin/env bash
# Times a training step of the same Neural Turing machine here and in PyTorch, one after the other, and prints the ratio
# and both peaks of memory.
#   scripts/peers/compare_ntm.sh target/release/atpm-train [--rows 16 --size 20 …]
# PEER_PYTHON names a Python that has PyTorch; without it, scripts/peers/install.sh makes one.
set -euo pipefail
source "$(dirname "$0")/frame.sh"

ours=$("$binary" bench --threads "$threads" ntm --json "$@")
peer=$("$python" "$here/torch_ntm.py" --threads "$threads" "$@")
beside "$ours" "$peer"
