#!/usr/bin/env bash
# Rehearses scripts/gpu_check.sh without a GPU: the bundle's own programs and scripts, with the emulated driver in place
# of libcuda, cuBLAS and cuRAND, and small sizes, since every kernel runs on one core.
#
#   scripts/rehearse.sh        after scripts/gpu_bundle.sh
#
# Also that the programs start without any driver and say what is missing, and that a kernel which fails in the middle of a
# run leaves its checkpoints. docs/cuda.md says what emulation cannot see.
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=target/gpu-bundle
[ -x "$bundle/gpu_check.sh" ] || { echo "no $bundle: run make gpu-bundle" >&2; exit 1; }
driver=$(realpath "$(scripts/emulated_driver.sh)")
work=target/rehearsal
rm -rf "$work"
cp -r "$bundle" "$work"
gzip -d "$work"/bin/*.gz

echo "== without a driver"
if (cd "$work" && bin/atpm-train --config configs/debug.toml --set device=cuda:0) 2>"$work/no-driver.txt"; then
  echo "a run on CUDA went on without a driver" >&2
  exit 1
fi
tail -3 "$work/no-driver.txt"

export LD_LIBRARY_PATH=$driver ATPM_EMULATED_LAUNCHES=$PWD/$work/launches.txt

echo "== with the emulated driver: a kernel that fails in the middle of a run"
faulty=(bin/atpm-train --config configs/debug.toml --set device=cuda:0 --set train.steps=6 --set eval.every=0
  --set checkpoint.every=1 --set run_dir=faulty)
outcome=0
(cd "$work" && ATPM_EMULATED_FAULT=300 "${faulty[@]}") 2>"$work/faulty.txt" || outcome=$?
tail -1 "$work/faulty.txt"
if [ $outcome != 1 ] || ! grep -q 'ILLEGAL_ADDRESS.*driver CUDA' "$work/faulty.txt" || grep -q panicked "$work/faulty.txt"; then
  echo "exit code $outcome; expected 1, with the failure and the versions" >&2
  exit 1
fi
(cd "$work" && "${faulty[@]}" --resume auto --dry-run --json) 2>/dev/null | grep -oE '"resumes_from": ?[1-9][0-9]*' ||
  { echo "no checkpoint was left to go on from" >&2; exit 1; }

echo "== with the emulated driver: the check"
export STEPS=${STEPS:-6} FLAT=${FLAT:-0} RESUME=${RESUME:-2} LARGE=${LARGE:-0} TIMED=${TIMED:-0} BENCH=${BENCH:-0} LIMIT=${LIMIT:-3000}
export OPS_CONFIG=${OPS_CONFIG:-configs/debug.toml} OPS_ROWS=${OPS_ROWS:-1} OPS_TOKENS=${OPS_TOKENS:-64} MIXER_SIZES=${MIXER_SIZES:-1x64}
"$work/gpu_check.sh"
echo "kernels launched by all programs together:"
awk '{ sum[$2] += $1 } END { for (name in sum) print sum[name], name }' "$work/launches.txt" | sort -k2
