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
mkdir -p "$out"
flags=(-std=c++17 -O3 --expt-relaxed-constexpr -Werror all-warnings)
failed=0

# Compiles one file for one architecture; the compiler's account of registers goes to FILE.ARCH.log.
compile() {
  local op=$1 arch=$2
  "$bin/nvcc" "${flags[@]}" -arch="$arch" -Xptxas -v -cubin "kernels/$op.cu" -o "$out/$op.$arch.cubin" 2>"$out/$op.$arch.log" ||
    { cat "$out/$op.$arch.log" >&2; return 1; }
  if grep -E '[1-9][0-9]* bytes spill' "$out/$op.$arch.log" >&2; then
    echo "kernels/$op.cu spills registers on $arch" >&2
    failed=1
  fi
}

for source in kernels/*.cu; do
  op=$(basename "$source" .cu)
  for arch in sm_80 sm_90; do compile "$op" "$arch"; done
  "$bin/nvcc" "${flags[@]}" -arch=compute_80 -ptx "$source" -o "$out/$op.ptx"
  "$bin/fatbinary" -64 --create="$out/$op.fatbin" \
    --image3=kind=elf,sm=80,file="$out/$op.sm_80.cubin" \
    --image3=kind=elf,sm=90,file="$out/$op.sm_90.cubin" \
    --image3=kind=ptx,sm=80,file="$out/$op.ptx"
done

# Every kernel of the bf16 mixer that has products must have them on tensor cores, and none of the f32 mixer's may.
for arch in sm_80 sm_90; do
  "$bin/cuobjdump" -sass "$out/mixer.$arch.cubin" |
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
