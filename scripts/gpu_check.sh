#!/usr/bin/env bash
# Checks a GPU with the bundle of scripts/gpu_bundle.sh: from that folder, without a compiler, under 8 minutes.
#
#   ./gpu_check.sh [OUT]     (check-results)
#
# Prints one table, writes OUT/check.json and a log a check, and fails if a check fails. Sizes may be set by the
# environment, for a rehearsal where a GPU is emulated; the defaults are for a device:
#   DEVICE     cuda:0
#   STEPS      50       steps of configs/debug.toml, on CUDA twice and on the CPU once
#   TOLERANCE  1e-3     relative difference of a step's loss between CUDA and the CPU
#   RESUME     10       steps before and after the interruption
#   LARGE      1        long and wide shapes too (0: not)
#   TIMED      12       steps of configs/200m.toml, to be timed (0: not)
#   TIMED_ROWS 32       their rows, at once
#   TIMED_TOKENS 2048   tokens of a row
#   BENCH      1        a step and decoding, timed (0: not)
#   LIMIT      420      seconds for everything; what begins later is left out and counts as failed
#   TESTS      empty    a filter for the launch tests
set -uo pipefail
cd "$(dirname "$0")"

out=${1:-check-results}
device=${DEVICE:-cuda:0}
steps=${STEPS:-50}
tolerance=${TOLERANCE:-1e-3}
resume=${RESUME:-10}
limit=${LIMIT:-420}
timed=${TIMED:-12}
timed_rows=${TIMED_ROWS:-32}
timed_tokens=${TIMED_TOKENS:-2048}
train=bin/atpm-train
export ATPM_GOLDEN=$PWD/golden

rm -rf "$out"
mkdir -p "$out"
for packed in bin/*.gz; do [ ! -e "$packed" ] || gzip -d -f "$packed"; done
failures=0
rows=() # name, outcome, seconds, what was seen: separated by tabs

# check NAME COMMAND…: runs the command; its last line is what the table shows.
check() {
  local name=$1 log="$out/${1// /-}.log" begin=$SECONDS outcome detail
  shift
  if [ $((limit - begin)) -le 0 ]; then
    rows+=("$name"$'\t'"failed"$'\t'"0"$'\t'"no time left")
    failures=$((failures + 1))
    return
  fi
  export LEFT=$((limit - begin))
  if "$@" >"$log" 2>&1; then outcome=passed; else outcome=failed failures=$((failures + 1)); fi
  detail=$(grep -v '^[[:space:]]*$' "$log" | tail -1 | tr '\t' ' ' | cut -c1-160)
  rows+=("$name"$'\t'"$outcome"$'\t'"$((SECONDS - begin))"$'\t'"$detail")
  printf '%-28s %-8s %4d s  %s\n' "$name" "$outcome" $((SECONDS - begin)) "$detail"
}
missing() { # name, why
  rows+=("$1"$'\t'"missing"$'\t'"0"$'\t'"$2")
  printf '%-28s %-8s %4d s  %s\n' "$1" missing 0 "$2"
}

doctor() {
  timeout "$LEFT" $train doctor --device "$device" --json >"$out/doctor.json" &&
    timeout "$LEFT" $train doctor --device "$device"
}
# The test binary's summary comes last, after the failures if there are any.
launch_tests() { timeout "$LEFT" bin/cuda-tests "$@" | grep -v '^$'; return "${PIPESTATUS[0]}"; }

run() { # device, run folder, more settings
  local device=$1 folder=$2
  shift 2
  timeout "$LEFT" $train --config configs/debug.toml --set device="$device" --set run_dir="$folder" --set train.steps="$steps" \
    --set schedule.warmup=5 --set eval.every="$steps" --set checkpoint.every="$steps" "$@" --json >"$folder.json"
}
losses() { sed -nE 's/.*"step":([0-9]+).*"loss":([-+0-9.eE]+).*/\1 \2/p; t; s/.*"loss":([-+0-9.eE]+).*"step":([0-9]+).*/\2 \1/p' "$1/metrics.jsonl"; }
near() { # run, run, largest relative difference of a step's loss
  paste -d ' ' <(losses "$1") <(losses "$2") | awk -v most="$3" -v steps="$steps" '
    { if ($1 != $3 || NF != 4) broken = 1; d = ($4 - $2) / $2; if (d < 0) d = -d; if (!(d <= worst)) worst = d }
    END { printf "%d steps, largest relative difference of a loss %.2e (at most %s), last loss %s\n", NR, worst, most, $4
          exit broken || NR != steps || !(worst <= most) }'
}
cuda_as_cpu() { run cpu "$out/cpu" && run "$device" "$out/cuda" && near "$out/cpu" "$out/cuda" "$tolerance"; }
# Activations in bf16: twice the same, and near the f32 run.
in_bf16() {
  run "$device" "$out/bf16" --set train.dtype=bf16 && run "$device" "$out/bf16-again" --set train.dtype=bf16 || return
  diff <(losses "$out/bf16") <(losses "$out/bf16-again") >/dev/null || { echo "losses of two runs differ"; return 1; }
  near "$out/cuda" "$out/bf16" 2e-2
}
twice_the_same() {
  run "$device" "$out/again" || return
  diff <(losses "$out/cuda") <(losses "$out/again") >/dev/null || { echo "losses differ"; return 1; }
  local file compared=0
  for file in "$out"/cuda/checkpoints/step-*/*.safetensors; do
    cmp "$file" "$out/again${file#"$out/cuda"}" || return
    compared=$((compared + 1))
  done
  echo "losses of $(losses "$out/cuda" | wc -l) steps and $compared checkpoint files equal to the bit"
  [ "$compared" -gt 0 ]
}
resume_exact() {
  timeout "$LEFT" $train verify-resume --config configs/debug.toml --set device="$device" --set run_dir="$out/resume" \
    --steps "$resume" --more "$resume"
}
evaluation() {
  local shards=(--data 'data/demo/val_*.parquet' --batches 4 --tokens 256 --json)
  timeout "$LEFT" $train eval --model "$out/cuda" "${shards[@]}" --device cpu >"$out/eval-cpu.json" &&
    timeout "$LEFT" $train eval --model "$out/cuda" "${shards[@]}" --device "$device" >"$out/eval-cuda.json" || return
  value() { tr ',{' '\n\n' <"$1" | sed -nE 's/^ *"loss": ?([-+0-9.eE]+).*/\1/p' | head -1; }
  awk -v cpu="$(value "$out/eval-cpu.json")" -v cuda="$(value "$out/eval-cuda.json")" 'BEGIN {
    d = (cuda - cpu) / cpu; if (d < 0) d = -d
    printf "loss of one checkpoint: CPU %s, CUDA %s, relative difference %.2e\n", cpu, cuda, d
    exit !(cpu > 0 && d <= 1e-4) }'
}
memory_in_use() { # MiB of all processes on the device
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "${device#cuda:}" 2>/dev/null
}
large_run=(--config configs/200m.toml --set device="$device" --set run_dir="$out/200m" --set data.lanes=2
  --set data.train='data/demo/train_*.parquet' --set data.val='data/demo/val_*.parquet'
  --set train.rows="$timed_rows" --set train.tokens="$timed_tokens" --set train.accumulate=1 --set train.dtype=bf16
  --set train.steps="$timed" --set eval.every=0 --set checkpoint.every=0 --set report.telemetry_every=0 --json)
timed_steps() {
  local peak=0 used
  timeout "$LEFT" $train "${large_run[@]}" >"$out/200m.json" &
  local pid=$!
  while kill -0 $pid 2>/dev/null; do
    used=$(memory_in_use || true)
    [ "${used:-0}" -gt "$peak" ] && peak=$used
    sleep 0.5
  done
  wait $pid || return
  echo "$peak" >"$out/200m.peak"
  rm -rf "$out/200m/checkpoints" # 2.5 GB
  # Of the last record: rates are means over the steps before it.
  tail -1 "$out/200m/metrics.jsonl" | tr ',{}' '\n\n\n' | awk -F: '
    /"tokens_per_s"/ { tokens = $2 } /"gflop_per_s"/ { gflops = $2 } /"data_wait_share"/ { wait = $2 }
    END { printf "%d tokens/s, %.1f TFLOP/s of the model, waiting for data %.1f %%\n", tokens, gflops / 1000, 100 * wait
          exit !(tokens > 0) }'
}
# The estimate that a run begins with, beside what the driver said during it.
memory_estimate() {
  local estimate
  estimate=$($train "${large_run[@]}" --resume auto --dry-run | tr ',{' '\n\n' | sed -nE 's/^ *"memory_bytes": ?([0-9]+).*/\1/p')
  awk -v estimate="$estimate" -v peak="$(cat "$out/200m.peak")" 'BEGIN {
    ratio = peak * 1048576 / estimate
    printf "estimated %.0f MiB, in use %d MiB: %.1f %%\n", estimate / 1048576, peak, 100 * ratio
    exit !(ratio > 0.9 && ratio < 1.1) }'
}

printf '%-28s %-8s %6s  %s\n' check outcome time "what was seen"
check "doctor" doctor
check "golden files" launch_tests golden::
check "ops CUDA = CPU" launch_tests ${TESTS:-} --skip golden::
if [ "${LARGE:-1}" = 1 ]; then check "long and wide shapes" launch_tests large:: --ignored; else missing "long and wide shapes" "LARGE=0"; fi
check "training CUDA = CPU" cuda_as_cpu
check "two CUDA runs" twice_the_same
check "training in bf16" in_bf16
check "resume" resume_exact
check "evaluation CUDA = CPU" evaluation
if [ "$timed" -gt 0 ]; then
  check "200m.toml" timed_steps
  if [ "$(cat "$out/200m.peak" 2>/dev/null || echo 0)" -gt 0 ]; then
    check "memory estimate" memory_estimate
  else
    missing "memory estimate" "nvidia-smi says nothing"
  fi
else
  missing "200m.toml" "TIMED=0"
fi
for bench in step ops decode; do
  if [ "${BENCH:-1}" = 0 ]; then
    missing "bench $bench" "BENCH=0"
  elif $train bench $bench --help | grep -q -- --device; then
    check "bench $bench" timeout 60 $train bench $bench --device "$device"
  else
    missing "bench $bench" "the command runs on the CPU only"
  fi
done
missing "kernels against their floors" "there is no such command yet"

json_text() { printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g' | tr -d '\000-\037'; }
{
  printf '{"date": "%s", "device": "%s", "gpu": "%s", "version": "%s", "seconds": %d, "failures": %d,\n "checks": [' \
    "$(date -u +%FT%TZ)" "$device" "$(json_text "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)")" \
    "$($train --version)" "$SECONDS" "$failures"
  separator=
  for row in "${rows[@]}"; do
    IFS=$'\t' read -r name outcome seconds detail <<<"$row"
    printf '%s\n  {"check": "%s", "outcome": "%s", "seconds": %d, "seen": "%s"}' \
      "$separator" "$name" "$outcome" "$seconds" "$(json_text "$detail")"
    separator=,
  done
  printf '\n ]}\n'
} >"$out/check.json"
printf '%d of %d checks failed, %d s; %s/check.json\n' "$failures" "${#rows[@]}" "$SECONDS" "$out"
[ "$failures" -eq 0 ]
