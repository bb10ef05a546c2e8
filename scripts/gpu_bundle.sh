#!/usr/bin/env bash
# One folder to carry to a machine with a GPU: target/gpu-bundle, below 60 MB, and nothing to build there.
#
#   scripts/gpu_bundle.sh
#
# It holds the program and the launch tests (packed by gzip, which gpu_check.sh undoes), configs, golden files, demo
# shards, gpu_check.sh and the peers' scripts that it runs where a Python has PyTorch. The programs start on any x86-64 Linux with a C library as new as this one's, and want a driver
# and cuBLAS, cuRAND of CUDA 13 when they are asked for a GPU. Needs a C and a C++ compiler and pip; compiles with the
# toolkit of `make cuda-toolkit`. The golden files are looked for in $ATPM_GOLDEN, or data/golden.
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=target/gpu-bundle
most_megabytes=60
stand_ins=$PWD/target/cuda/stand-ins
golden=${ATPM_GOLDEN:-data/golden}

scripts/cuda_toolkit.sh >&2
scripts/cuda_stand_ins.sh "$stand_ins"
export CUDA_HOME=$PWD/target/cuda/site/nvidia/cu13
export CUDA_PATH=$CUDA_HOME NVCC=$CUDA_HOME/bin/nvcc PATH=$CUDA_HOME/bin:$PATH
# candle's kernels, as PTX of the oldest device: the driver compiles them for the one it has.
export CUDA_COMPUTE_CAP=80
# Not where other builds are: what is linked with stand-ins looks to Cargo as what is not.
export CARGO_TARGET_DIR=target/cuda-build LIBRARY_PATH=$stand_ins
ln -sf "$CUDA_HOME/lib/libcudart_static.a" "$stand_ins/libcudart.a"

# One command, so that both have the same dependencies.
cargo build --release --workspace --locked --features cuda --bin atpm-train --test cuda \
  --message-format json-render-diagnostics >"$stand_ins/build.json"
executable() { # target's name
  python3 -c '
import json, sys
messages = [json.loads(line) for line in sys.stdin]
print(next(message["executable"] for message in messages
           if message.get("executable") and message["target"]["name"] == sys.argv[1]))' "$1" <"$stand_ins/build.json"
}

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/golden" "$bundle/peers"
strip -o "$bundle/bin/atpm-train" "$(executable atpm-train)"
strip -o "$bundle/bin/cuda-tests" "$(executable cuda)"
for program in "$bundle"/bin/*; do
  if readelf -d "$program" | grep -E 'NEEDED.*\[lib(cu|nv)'; then
    echo "$program names a CUDA library: it would not start without" >&2
    exit 1
  fi
done
cp -r configs "$bundle/configs"
cp "$golden"/*.safetensors "$bundle/golden/"
cp scripts/gpu_check.sh "$bundle/"
cp scripts/peers/torch_mixers.py scripts/peers/torch_step.py "$bundle/peers/"
"$bundle/bin/atpm-train" data demo --out "$bundle/data/demo" >&2
gzip "$bundle"/bin/*

megabytes=$(du -sm "$bundle" | cut -f1)
du -sh "$bundle"/* "$bundle"
if [ "$megabytes" -ge "$most_megabytes" ]; then
  echo "$bundle has $megabytes MB, of which below $most_megabytes are allowed" >&2
  exit 1
fi
