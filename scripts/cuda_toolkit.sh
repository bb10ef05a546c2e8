#!/usr/bin/env bash
# A CUDA 13.0 toolkit out of Python wheels, for machines without one: nvcc, headers, cuobjdump, nvdisasm. No GPU and
# no driver needed; about 280 MB.
#
#   scripts/cuda_toolkit.sh [FOLDER]     (target/cuda)
#
# 13.0 and no later: a driver refuses the PTX of a toolkit newer than itself. The two tools that read binaries are
# published from 13.2 on only; they read those of 13.0.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-target/cuda}
packages=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
  nvidia-cuda-cuobjdump==13.2.78 nvidia-cuda-nvdisasm==13.2.78
)
stamp="$folder/.$(printf '%s\n' "${packages[@]}" | sha256sum | cut -c1-12)"
home="$folder/site/nvidia/cu13"

if [ ! -e "$stamp" ]; then
  mkdir -p "$folder"
  "${PYTHON:-python3}" -m pip install --quiet --no-deps --upgrade --target "$folder/site" "${packages[@]}"
  ln -sfn lib "$home/lib64" # where nvcc's own configuration looks
  touch "$stamp"
fi
"$home/bin/nvcc" --version | tail -2
echo "CUDA_HOME=$(cd "$home" && pwd)"
