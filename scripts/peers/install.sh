#!/usr/bin/env bash
# Makes target/peers, a Python environment with PyTorch for the CPU and transformers, unless it is there, and prints
# its interpreter. PEER_PYTHON names another one to take instead.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [[ -z "${PEER_PYTHON:-}" ]]; then
  PEER_PYTHON=$PWD/target/peers/bin/python
  if ! "$PEER_PYTHON" -c 'import torch, transformers' 2>/dev/null; then
    mkdir -p target
    python3 -m venv target/peers
    target/peers/bin/pip install --quiet torch transformers >&2
  fi
fi
echo "$PEER_PYTHON"
