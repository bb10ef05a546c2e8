#!/usr/bin/env bash
# Runs every CUDA kernel on the CPU, by emulation: kernels/tests/*.cpp, each with the host's compiler.
#
#   scripts/test_kernels.sh
#
# Then once more under AddressSanitizer and with alignment checked (the mixer with fewer cases), and last the tests of
# the tests: kernels with a planted fault, which must fail. The mixer's golden files are those of $ATPM_GOLDEN, or of data/golden.
# docs/cuda.md says what the emulation sees and what not.
set -euo pipefail
cd "$(dirname "$0")/.."

cxx=${CXX:-g++}
out=target/kernel-tests
flags=(-std=c++17 -Wall -Wextra -Werror -Wno-unknown-pragmas)
mkdir -p "$out"

build() { # test binary flags…
  local test=$1 binary=$2
  shift 2
  "$cxx" "${flags[@]}" "$@" "kernels/tests/$test.cpp" kernels/emulation/emulation.cpp -o "$out/$binary"
}

tests=()
for source in kernels/tests/*.cpp; do tests+=("$(basename "$source" .cpp)"); done

for test in "${tests[@]}"; do
  build "$test" "$test" -O2
  "$out/$test"
done

# A GPU refuses what is not aligned to its size; this processor does not mind.
sanitizers=(-O1 -g1 -fsanitize=address,alignment -fno-sanitize-recover=alignment -fno-omit-frame-pointer)
echo "under AddressSanitizer, with alignment checked:"
for test in "${tests[@]}"; do
  build "$test" "$test-asan" "${sanitizers[@]}"
  "$out/$test-asan" quick
done

for fault in MISSING_BARRIER WRONG_WAIT STORE_ONE_TOO_MANY MISALIGNED_PAIR; do
  options=(-O2) sign='FAILED|emulation:'
  if [ $fault = MISALIGNED_PAIR ]; then options=("${sanitizers[@]}") sign='misaligned address'; fi
  build mixer "mixer-$fault" "${options[@]}" "-DPLANT_$fault"
  # In a shell of its own, which keeps quiet where the fault ends in a crash.
  if (exec 2>/dev/null; "$out/mixer-$fault" quick 2>&1 >"$out/mixer-$fault.log") >"$out/mixer-$fault.errors"; then
    echo "the tests did not notice the planted fault $fault" >&2
    exit 1
  fi
  grep -qE "$sign" "$out/mixer-$fault.errors" || { cat "$out/mixer-$fault.errors" >&2; exit 1; }
  echo "planted fault $fault: noticed"
done
