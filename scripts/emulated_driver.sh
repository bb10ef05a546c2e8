#!/usr/bin/env bash
# Builds the emulated CUDA driver: target/emulated-driver/libcuda.so.1, and cuBLAS and cuRAND beside it.
#
#   scripts/emulated_driver.sh
#   LD_LIBRARY_PATH=target/emulated-driver PROGRAM…
#
# PROGRAM is one built with feature `cuda` and linked by scripts/gpu_bundle.sh. Needs g++ on x86-64, and cuda.h of
# `make cuda-toolkit`.
set -euo pipefail
cd "$(dirname "$0")/.."

out=target/emulated-driver
include=${CUDA_HOME:-target/cuda/site/nvidia/cu13}/include
[ -e "$include/cuda.h" ] || { echo "no cuda.h in $include: set CUDA_HOME, or run make cuda-toolkit" >&2; exit 1; }
mkdir -p "$out"

objects=()
for part in emulation launch memory driver libraries candle_kernels; do
  source=kernels/emulation/$part.cpp object=$out/$part.o
  objects+=("$object")
  # The kernels take a minute; only they are kept where nothing changed.
  if [ -e "$object" ] && [ -z "$(find kernels -type f -newer "$object")" ]; then
    continue
  fi
  "${CXX:-g++}" -std=c++17 -O2 -fPIC -Wall -Wextra -Werror -Wno-unknown-pragmas -isystem "$include" -c "$source" -o "$object"
done
"${CXX:-g++}" -shared -Wl,-soname,libcuda.so.1 -o "$out/libcuda.so.1" "${objects[@]}"
for library in libcublas.so.13 libcublasLt.so.13 libcurand.so.10; do ln -sf libcuda.so.1 "$out/$library"; done
echo "$out"
