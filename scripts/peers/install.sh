#!/usr/bin/env bash
# Makes target/peers, a Python environment with PyTorch for the CPU; does nothing if it is there.
set -euo pipefail
cd "$(dirname "$0")/../.."

if target/peers/bin/python -c 'import torch' 2>/dev/null; then
  exit 0
fi
mkdir -p target
python3 -m venv target/peers
target/peers/bin/pip install --quiet torch
