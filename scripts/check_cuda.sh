#!/usr/bin/env bash
# Type check and lints of what only a CUDA build compiles, crates/atpm-core/src/cuda/enabled.rs above all, on a machine
# without CUDA: nothing is linked, so nothing of CUDA is needed but a compiler's name.
#
#   scripts/check_cuda.sh [more flags of cargo clippy]
#
# In place of nvcc stands a script that writes empty files where kernels would be: candle's and ours are compiled by
# `make kernels` and `make gpu-bundle`, not here. Hence a target directory of its own: a build must not find these files.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$PWD/target/cuda-check
mkdir -p "$target/stand-in/bin"
nvcc=$target/stand-in/bin/nvcc
cat >"$nvcc.new" <<'EOF_NVCC'
#!/bin/sh
# The file that nvcc was asked for, with nothing in it.
out=
while [ $# -gt 0 ]; do
  case $1 in
    -o) out=$2; shift ;;
    --output-directory) folder=$2; shift ;;
    *.cu) source=$1 ;;
  esac
  shift
done
: >"${out:-${folder:-.}/$(basename "${source:-none}" .cu).ptx}"
EOF_NVCC
chmod +x "$nvcc.new"
# Only if it is another one: build scripts look at its time.
if cmp -s "$nvcc.new" "$nvcc"; then rm "$nvcc.new"; else mv "$nvcc.new" "$nvcc"; fi

# What the toolkit would tell: its version, as scripts/cuda_toolkit.sh has it, and the oldest device.
export NVCC=$nvcc CUDARC_CUDA_VERSION=13000 CUDA_COMPUTE_CAP=80 CARGO_TARGET_DIR=$target
unset CUDA_HOME CUDA_PATH CUDA_ROOT CUDA_TOOLKIT_ROOT_DIR
# Nothing of it computes for long: what runs while compiling need not be optimised first.
exec cargo clippy --config 'profile.dev.package."*".opt-level=0' --workspace --lib --bins --test cuda --features cuda --locked \
  "$@" -- -D warnings
