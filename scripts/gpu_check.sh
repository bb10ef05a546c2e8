#!/usr/bin/env bash
# Checks a GPU with the bundle of scripts/gpu_bundle.sh: from that folder, without a compiler, under 8 minutes.
#
#   ./gpu_check.sh [OUT]     (check-results)
#
# Prints one table, writes OUT/check.json and a log a check, and fails if a check fails. First what must be right, then
# what is timed: ops beside their floors, and, where a Python has PyTorch with CUDA and flash-linear-attention, the mixer and
# the step beside those; a peer that is not there is `missing`, with the reason. Sizes may be set by the environment, for a
# rehearsal where a GPU is emulated; the defaults are for a device:
#   DEVICE     cuda:0   with a number other than 0, that GPU alone is shown to everything here, as cuda:0
#   STEPS      50       steps of configs/debug.toml, on CUDA twice and on the CPU once
#   TOLERANCE  1e-3     relative difference of a step's loss between CUDA and the CPU
#   FLAT       4194304  bytes by which what a run took may differ from what one of a fifth of its steps took
#   RESUME     10       steps before and after the interruption
#   LARGE      1        long and wide shapes too (0: not)
#   TIMED      12       steps of configs/200m.toml, to be timed (0: not)
#   TIMED_ROWS 32       their rows, at once
#   TIMED_TOKENS 2048   tokens of a row
#   BENCH      1        a step and decoding, timed (0: not)
#   OPS_CONFIG configs/200m.toml   model of the timed ops and mixers
#   OPS_ROWS   32       rows of the timed ops
#   OPS_TOKENS 2048     tokens of a row
#   MIXER_SIZES "8x2048 64x2048"   rows and tokens at which the mixer is timed beside its peers
#   PEER_PYTHON python3 a Python that may have PyTorch and flash-linear-attention
#   LIMIT      420      seconds for everything; what begins later is left out: a check then counts as failed, a peer as missing
#   TESTS      empty    a filter for the launch tests
set -uo pipefail
cd "$(dirname "$0")"

out=${1:-check-results}
device=${DEVICE:-cuda:0}
# One GPU for every program, tests and peers among them; what the caller shows already is counted from 0.
case $device in
  cuda*)
    number=${device#cuda}
    number=${number#:}
    IFS=, read -ra shown <<<"${CUDA_VISIBLE_DEVICES:-}"
    export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=${shown[${number:-0}]:-${number:-0}}
    device=cuda:0
    ;;
esac
steps=${STEPS:-50}
tolerance=${TOLERANCE:-1e-3}
resume=${RESUME:-10}
limit=${LIMIT:-420}
timed=${TIMED:-12}
timed_rows=${TIMED_ROWS:-32}
timed_tokens=${TIMED_TOKENS:-2048}
ops_config=${OPS_CONFIG:-configs/200m.toml}
mixer_sizes=${MIXER_SIZES:-8x2048 64x2048}
peer_python=${PEER_PYTHON:-python3}
train=bin/atpm-train
export ATPM_GOLDEN=$PWD/golden

# cuBLAS and cuRAND out of Python's packages, where the loader does not know of any.
loader_knows() {
  local folder folders=${LD_LIBRARY_PATH:-}
  for folder in ${folders//:/ }; do [ ! -e "$folder/$1" ] || return 0; done
  # Read to its end: a pipe that closes early is a failure here.
  { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep "$1" >/dev/null
}
for library in libcublas.so.13 libcurand.so.10; do
  loader_knows $library && continue
  found=$("$peer_python" -c '
import pathlib, sys
for folder in filter(None, sys.path):
    for found in pathlib.Path(folder).glob("nvidia/**/" + sys.argv[1]):
        sys.exit(print(found.parent))' $library 2>/dev/null)
  [ -z "$found" ] || export LD_LIBRARY_PATH=$found${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done

rm -rf "$out"
mkdir -p "$out"
for packed in bin/*.gz; do [ ! -e "$packed" ] || gzip -d -f "$packed"; done
failures=0
rows=() # name, outcome, seconds, what was seen: separated by tabs

row() { # name, outcome, seconds, what was seen
  rows+=("$1"$'\t'"$2"$'\t'"$3"$'\t'"$4")
  if [ "$2" = failed ]; then failures=$((failures + 1)); fi
  printf '%-28s %-8s %4d s  %s\n' "$@"
}
missing() { row "$1" missing 0 "$2"; } # name, why

# attempt OTHERWISE NAME COMMAND…: runs the command; its last line is what the table shows. OTHERWISE is the outcome
# where it does not succeed; with exit code 99 it has found a fault, and failed in any case.
attempt() {
  local otherwise=$1 name=$2 log="$out/${2// /-}.log" begin=$SECONDS outcome=passed detail
  shift 2
  if [ $((limit - begin)) -le 0 ]; then
    row "$name" "$otherwise" 0 "no time left"
    return
  fi
  export LEFT=$((limit - begin))
  "$@" >"$log" 2>&1
  case $? in 0) ;; 99) outcome=failed ;; *) outcome=$otherwise ;; esac
  detail=$(grep -v '^[[:space:]]*$' "$log" | tail -1 | tr '\t' ' ' | cut -c1-160)
  row "$name" "$outcome" $((SECONDS - begin)) "$detail"
}
check() { attempt failed "$@"; }
peer() { attempt missing "$@"; }

doctor() {
  timeout "$LEFT" $train doctor --device "$device" --json >"$out/doctor.json" &&
    timeout "$LEFT" $train doctor --device "$device"
}
# One test after the other: they share a stream and a handle of cuBLAS. The binary's summary comes last, after the failures
# if there are any.
launch_tests() { timeout "$LEFT" bin/cuda-tests --test-threads=1 "$@" | grep -v '^$'; return "${PIPESTATUS[0]}"; }

run() { # device, run folder, more settings
  local device=$1 folder=$2
  shift 2
  timeout "$LEFT" $train --config configs/debug.toml --set device="$device" --set run_dir="$folder" --set train.steps="$steps" \
    --set schedule.warmup=5 --set eval.every="$steps" --set checkpoint.every="$steps" "$@" --json >"$folder.json"
}
# A record begins with its step and the step's loss; further losses, of evaluations, may follow.
losses() { sed -nE 's/^\{"step":([0-9]+),"loss":([-+0-9.eE]+).*/\1 \2/p' "$1/metrics.jsonl"; }
near() { # run, run, largest relative difference of a step's loss
  paste -d ' ' <(losses "$1") <(losses "$2") | awk -v most="$3" -v steps="$steps" '
    { if ($1 != $3 || NF != 4) broken = 1; d = ($4 - $2) / $2; if (d < 0) d = -d; if (!(d <= worst)) worst = d }
    END { printf "%d steps, largest relative difference of a loss %.2e (at most %s), last loss %s\n", NR, worst, most, $4
          exit broken || NR != steps || !(worst <= most) }'
}
same_losses() { diff <(losses "$1") <(losses "$2") >/dev/null || { echo "losses of two runs differ"; return 1; }; }
cuda_as_cpu() { run cpu "$out/cpu" && run "$device" "$out/cuda" && near "$out/cpu" "$out/cuda" "$tolerance"; }
# Activations in bf16: twice the same, and near the f32 run.
in_bf16() {
  run "$device" "$out/bf16" --set train.dtype=bf16 && run "$device" "$out/bf16-again" --set train.dtype=bf16 || return
  same_losses "$out/bf16" "$out/bf16-again" || return
  near "$out/cuda" "$out/bf16" 2e-2
}
twice_the_same() {
  run "$device" "$out/again" || return
  same_losses "$out/cuda" "$out/again" || return
  local file compared=0
  for file in "$out"/cuda/checkpoints/step-*/*.safetensors; do
    cmp "$file" "$out/again${file#"$out/cuda"}" || return
    compared=$((compared + 1))
  done
  echo "losses of $(losses "$out/cuda" | wc -l) steps and $compared checkpoint files equal to the bit"
  [ "$compared" -gt 0 ]
}
# The host waits for every kernel: what only the order of a stream hides (memory freed or written too early) shows as a
# difference.
one_at_a_time() {
  CUDA_LAUNCH_BLOCKING=1 run "$device" "$out/waiting" && same_losses "$out/cuda" "$out/waiting" || return
  echo "losses of $(losses "$out/cuda" | wc -l) steps equal to the bit"
}
# What a step leaves behind adds up over steps.
memory_flat() {
  local few=$((steps < 10 ? 2 : steps / 5))
  run "$device" "$out/short" --set train.steps=$few --set schedule.warmup=1 --set eval.every=$few --set checkpoint.every=$few || return
  awk -v few=$few -v many="$steps" -v most="${FLAT:-4194304}" \
    -v short="$(number "$out/short.json" gpu_bytes)" -v long="$(number "$out/cuda.json" gpu_bytes)" 'BEGIN {
    d = long - short; if (d < 0) d = -d
    printf "taken by %d steps %.0f bytes, by %d steps %.0f: %.0f apart (at most %d)\n", few, short, many, long, d, most
    exit !(short > 0 && long > 0 && d <= most) }'
}
sanitizer() { # tool
  timeout "$((LEFT < 60 ? LEFT : 60))" compute-sanitizer --tool "$1" --error-exitcode 99 $train doctor --device "$device"
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
number() { cat "$1" 2>/dev/null | tr ',{}' '\n\n\n' | sed -nE 's/^ *"'"$2"'": ?([0-9.eE+-]+).*/\1/p' | tail -1; } # file, field
large_run=(--config configs/200m.toml --set device="$device" --set run_dir="$out/200m" --set data.lanes=2
  --set data.train='data/demo/train_*.parquet' --set data.val='data/demo/val_*.parquet'
  --set train.rows="$timed_rows" --set train.tokens="$timed_tokens" --set train.accumulate=1 --set train.dtype=bf16
  --set train.steps="$timed" --set eval.every=0 --set checkpoint.every=0 --set report.telemetry_every=0 --json)
timed_steps() {
  timeout "$LEFT" $train "${large_run[@]}" >"$out/200m.json" || return
  rm -rf "$out/200m/checkpoints" # 2.5 GB
  # Of the last record: rates are means over the steps before it.
  tail -1 "$out/200m/metrics.jsonl" | tr ',{}' '\n\n\n' | awk -F: '
    /"tokens_per_s"/ { tokens = $2 } /"gflop_per_s"/ { gflops = $2 } /"data_wait_share"/ { wait = $2 }
    END { printf "%d tokens/s, %.1f TFLOP/s of the model, waiting for data %.1f %%\n", tokens, gflops / 1000, 100 * wait
          exit !(tokens > 0) }'
}
# The estimate that a run begins with, beside what the run then took: the driver's own count of free memory, from when the
# device was open (context and library handles are there) to the end (the driver keeps what was freed). Both ends are one
# process's, so what the driver takes for itself is in neither.
memory_estimate() {
  local estimate
  estimate=$($train "${large_run[@]}" --resume auto --dry-run | tr ',{' '\n\n' | sed -nE 's/^ *"memory_bytes": ?([0-9]+).*/\1/p')
  awk -v estimate="$estimate" -v taken="$(number "$out/200m.json" gpu_bytes)" 'BEGIN {
    ratio = taken / estimate
    printf "estimated %.0f MiB, taken %.0f MiB: %.1f %%\n", estimate / 1048576, taken / 1048576, 100 * ratio
    exit !(ratio > 0.9 && ratio < 1.1) }'
}

# The rows of `bench ops --json`, and of a peer's: op, pass, seconds, floors for memory and products, times the floor.
rows_of() {
  tr '{' '\n' <"$1" | awk '
    function field(name, text) {
      if (!match($0, "\"" name "\": ?[^,}]*")) return "-"
      text = substr($0, RSTART, RLENGTH); sub(/^[^:]*: ?/, "", text); gsub(/"/, "", text)
      return text
    }
    /"pass":/ {
      printf "%s\t%s\t%s\t%s\t%s\t%s\n", field("op"), field("pass"), field("seconds"),
        field("memory_floor_seconds"), field("product_floor_seconds"), field("times_floor") }'
}
bench_ops() { # dtype
  timeout "$LEFT" $train bench ops --config "$ops_config" --batch "${OPS_ROWS:-32}" --seq "${OPS_TOKENS:-2048}" \
    --device "$device" --dtype "$1" --json >"$out/ops-$1.json" || return
  rows_of "$out/ops-$1.json" | awk -F '\t' '
    { printf "%-18s %-8s %10.3f ms   floors: memory %9.3f, products %9s   %6.1f times the higher\n", $1, $2, 1e3 * $3,
        1e3 * $4, ($5 == "null" ? "-" : sprintf("%.3f", 1e3 * $5)), $6 }
    $2 == "both" && $6 > worst { worst = $6; farthest = $1 }
    $1 == "mixer" && $2 == "both" { mixer = $6 }
    END { printf "%d rows; mixer at %.1f times its floor, farthest: %s at %.1f times\n", NR, mixer, farthest, worst
          exit !(NR > 20 && mixer > 0) }'
}
# FLOPs of the model in a second, over those of a large bf16 product of the library: both of this run.
share_of_peak() {
  awk -v ours="$(number "$out/200m/metrics.jsonl" gflop_per_s)" -v peak="$(number "$out/ops-bf16.json" gflop_per_s)" 'BEGIN {
    if (!(ours > 0 && peak > 0)) { print "nothing to compare"; exit 1 }
    printf "MFU %.1f %%: %.1f of %.1f TFLOP/s\n", 100 * ours / peak, ours / 1000, peak / 1000 }'
}
size_in() { sed -nE "s/^$1 *= *([0-9]+).*/\1/p" "$ops_config" | head -1; } # key of [model]
bench_mixer() { # rows x tokens
  timeout "$LEFT" $train bench ops --op mixer --config "$ops_config" --batch "${1%x*}" --seq "${1#*x}" \
    --device "$device" --dtype bf16 --json >"$out/mixer-$1.json" || return
  rows_of "$out/mixer-$1.json" | awk -F '\t' '
    $2 == "forward" { forward = $3 } $2 == "both" { both = $3; times = $6 }
    END { printf "forward %.3f ms, with backward %.3f ms, %.1f times the floor\n", 1e3 * forward, 1e3 * both, times
          exit !(forward > 0 && both > 0) }'
}
peer_script() { timeout "$LEFT" "$peer_python" "peers/$1" "${@:2}"; }
mixer_peers() { # rows x tokens
  [ -s "$out/mixer-$1.json" ] || { echo "our mixer was not timed"; return 1; }
  peer_script torch_mixers.py --batch "${1%x*}" --seq "${1#*x}" --heads "$(size_in heads)" --S "$(size_in address)" \
    --D $(($(size_in key) + $(size_in value))) >"$out/mixer-peers-$1.json" || return
  rows_of "$out/mixer-peers-$1.json" | awk -F '\t' -v ours="$(rows_of "$out/mixer-$1.json" | awk -F '\t' '$2 == "both" { print $3 }')" '
    $2 == "both" { printf "%s%s %.3f ms with backward, %.2f times ours", separator, $1, 1e3 * $3, $3 / ours; separator = "; "; ++seen }
    END { print ""; exit !seen }'
}
step_peer() {
  [ -s "$out/200m.json" ] || { echo "our step was not timed"; return 1; }
  local sizes=() pair
  for pair in d=d_model layers=layers heads=heads S=address K=key V=value R=rank mlp=mlp vocab=vocab; do
    sizes+=("--${pair%=*}" "$(sed -nE "s/^${pair#*=} *= *([0-9]+).*/\1/p" configs/200m.toml | head -1)")
  done
  peer_script torch_step.py "${sizes[@]}" --batch "$timed_rows" --seq "$timed_tokens" --steps 5 \
    --device cuda --fla --dtype bf16 --compile >"$out/200m-peer.json" || return
  awk -v ours="$(number "$out/200m.json" tokens_per_s)" -v theirs="$(number "$out/200m-peer.json" tokens_per_s)" 'BEGIN {
    printf "%d tokens/s; ours is %.2f times as fast\n", theirs, ours / theirs
    exit !(ours > 0 && theirs > 0) }'
}

printf '%-28s %-8s %6s  %s\n' check outcome time "what was seen"
check "doctor" doctor
check "golden files" launch_tests golden::
check "ops CUDA = CPU" launch_tests ${TESTS:-} --skip golden::
if [ "${LARGE:-1}" = 1 ]; then check "long and wide shapes" launch_tests large:: --ignored; else missing "long and wide shapes" "LARGE=0"; fi
check "training CUDA = CPU" cuda_as_cpu
check "two CUDA runs" twice_the_same
check "one kernel at a time" one_at_a_time
check "memory of more steps" memory_flat
check "training in bf16" in_bf16
check "resume" resume_exact
check "evaluation CUDA = CPU" evaluation
if [ "$timed" -gt 0 ]; then
  check "200m.toml" timed_steps
  if [ -n "$(number "$out/200m.json" gpu_bytes)" ]; then
    check "memory estimate" memory_estimate
  else
    missing "memory estimate" "the run did not end, or its device does not tell its memory"
  fi
else
  missing "200m.toml" "TIMED=0"
fi
for bench in step decode; do
  if [ "${BENCH:-1}" = 0 ]; then
    missing "bench $bench" "BENCH=0"
  else
    check "bench $bench" timeout 60 $train bench $bench --device "$device"
  fi
done
for dtype in f32 bf16; do check "ops beside floors $dtype" bench_ops $dtype; done
if [ "$timed" -gt 0 ]; then check "200m.toml beside the peak" share_of_peak; else missing "200m.toml beside the peak" "TIMED=0"; fi
for size in $mixer_sizes; do
  check "mixer $size" bench_mixer "$size"
  peer "mixer $size peers" mixer_peers "$size"
done
if [ "$timed" -gt 0 ]; then peer "200m.toml in PyTorch" step_peer; else missing "200m.toml in PyTorch" "TIMED=0"; fi

for tool in memcheck racecheck; do
  if command -v compute-sanitizer >/dev/null; then peer "$tool" sanitizer $tool; else missing "$tool" "no compute-sanitizer"; fi
done

json_text() { printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g' | tr -d '\000-\037'; }
{
  printf '{"date": "%s", "device": "%s", "gpu": "%s", "version": "%s", "seconds": %d, "failures": %d,\n "checks": [' \
    "$(date -u +%FT%TZ)" "$device" "$(json_text "$(nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i "$CUDA_VISIBLE_DEVICES"} --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)")" \
    "$($train --version)" "$SECONDS" "$failures"
  separator=
  for row in "${rows[@]}"; do
    IFS=$'\t' read -r name outcome seconds detail <<<"$row"
    printf '%s\n  {"check": "%s", "outcome": "%s", "seconds": %d, "seen": "%s"}' \
      "$separator" "$name" "$outcome" "$seconds" "$(json_text "$detail")"
    separator=,
  done
  printf '\n ],\n "measured": {'
  separator=
  # Each of these files is one object on one line.
  for file in "$out"/{200m,200m-peer,ops-*,mixer-*}.json; do
    # What ran out of time may have left something else.
    line=$(tail -1 "$file" 2>/dev/null | grep -x '{.*}') || continue
    printf '%s\n  "%s": %s' "$separator" "$(basename "$file" .json)" "$line"
    separator=,
  done
  printf '\n }}\n'
} >"$out/check.json"
printf '%d of %d checks failed, %d s; %s/check.json\n' "$failures" "${#rows[@]}" "$SECONDS" "$out"
[ "$failures" -eq 0 ]
