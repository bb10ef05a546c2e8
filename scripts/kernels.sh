#!/usr/bin/env bash
# Compiles the CUDA kernels: target/kernels/<op>.fatbin with code for sm_80 and sm_90 and PTX for what comes after.
#
#   scripts/kernels.sh
#
# Uses nvcc of $CUDA_HOME, of the PATH, or of `make cuda-toolkit`. Fails where a kernel spills registers, and where the
# bf16 mixer's products are not on tensor cores. Prints registers and shared memory of every kernel, and how many of its
# blocks and warps fit on a multiprocessor (dynamic shared memory as the launcher asks for it: the mixer's at S = K = V
# = 64, R = 16; backward of the norms at 1024 columns).
set -euo pipefail
cd "$(dirname "$0")/.."

local_toolkit=target/cuda/site/nvidia/cu13
if [ -n "${CUDA_HOME:-}" ]; then
  bin=$CUDA_HOME/bin
elif command -v nvcc >/dev/null; then
  bin=$(dirname "$(command -v nvcc)")
elif [ -x "$local_toolkit/bin/nvcc" ]; then
  bin=$local_toolkit/bin
else
  echo "no nvcc: set CUDA_HOME, or run make cuda-toolkit" >&2
  exit 1
fi

out=target/kernels
rm -rf "$out"
mkdir -p "$out"
failed=0

# As the build script of atpm-core does it; the compiler's account of registers goes to FILE.log.
for source in kernels/*.cu; do
  op=$(basename "$source" .cu)
  "$bin/nvcc" -fatbin --options-file kernels/nvcc_options -Xptxas -v "$source" -o "$out/$op.fatbin" 2>"$out/$op.log" ||
    { cat "$out/$op.log" >&2; exit 1; }
  if grep -E '[1-9][0-9]* bytes spill' "$out/$op.log" >&2; then
    echo "$source spills registers" >&2
    failed=1
  fi
done

# Every kernel of the bf16 mixer that has products must have them on tensor cores, and none of the f32 mixer's may.
for arch in sm_80 sm_90; do
  "$bin/cuobjdump" -arch "$arch" -sass "$out/mixer.fatbin" |
    awk '/Function :/ { name = $3; seen[name] = 0 } /HMMA/ { ++seen[name] } END { for (name in seen) print name, seen[name] }' |
    sort >"$out/mixer.$arch.hmma"
  awk -v arch="$arch" '
    /_bf16 0$/ { print $1 " has no tensor-core instruction on " arch; bad = 1 }
    /_f32 [1-9]/ { print $1 " rounds its products on " arch; bad = 1 }
    /_bf16 / { ++products }
    END { if (products != 7) { print "expected 7 bf16 kernels of the mixer, found " products + 0; bad = 1 } exit bad }
  ' "$out/mixer.$arch.hmma" >&2 || failed=1
done

"${CXX:-g++}" -std=c++17 -O1 -Wno-unknown-pragmas kernels/tests/launches.cpp kernels/emulation/emulation.cpp -o "$out/launches"
"$out/launches" table >"$out/launches.txt"
python3 scripts/kernel_table.py "$out"
du -ch "$out"/*.fatbin | tail -1 | sed 's/total/in fatbins/'
exit "$failed"
