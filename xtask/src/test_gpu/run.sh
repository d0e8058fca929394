#!/bin/bash
# Runs what `cargo xtask test-gpu --pack` has put beside this file, on a machine with a GPU: no Rust and no network needed.
#
#   run.sh [--out DIR] [--jobs N] [--bench] [--check] [--python PATH] [--simulate]
#
#   --out DIR      where the record goes (out, beside this file)
#   --jobs N       runs so many tests at once (1); each has several processes, with a context each
#   --bench        measures, too; with --python PATH beside torch on the same GPU
#   --check        with --bench: fails when a target is missed
#   --simulate     a rehearsal: the software driver stands in for the real one, and the figures say nothing
#
# The last line is `gpu: N of M ran`: of the M tests and examples that a machine with enough devices can run, N ran here; where
# some failed, it says how many, and the exit status is 1.
set -u
export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}" LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$here/out jobs=1 bench= check= python= simulate= word=gpu

fail() {
    echo "$word: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:?--out wants a folder}; shift ;;
        --jobs) jobs=${2:?--jobs wants a number}; shift ;;
        --bench) bench=1 ;;
        --check) check=--check ;;
        --python) python=${2:?--python wants a path}; shift ;;
        --simulate) simulate=1 ;;
        *) fail "unknown argument $1" ;;
    esac
    shift
done

# Nothing of the caller's environment decides which driver is tested.
unset TENSORFERRY_CUDA_DRIVER TENSORFERRY_TEST_CUDA
export TENSORFERRY_TEST_GPU=real
if [ -n "$simulate" ]; then
    word='gpu (simulated)'
    export LD_LIBRARY_PATH="$here/sim" TENSORFERRY_SIM_CUDA="${TENSORFERRY_SIM_CUDA:-memory_mib=4096}"
elif [ -e /usr/local/nvidia/lib64/libcuda.so.1 ]; then
    # Where containers have the driver, whether the loader knows or not.
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64"
fi

needed=$(sed -n 's/^glibc: //p' "$here/pack.txt")
found=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')
if [ -n "$needed" ] && [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" != "$needed" ]; then
    fail "these programs need glibc $needed, and this machine has ${found:-another C library}"
fi

# A program with a deadline in seconds.
bounded() {
    local seconds=$1
    shift
    timeout --kill-after=10 "$seconds" "$@"
}

if ! devices=$(bounded 60 "$here/bin/devices" --require 2>&1); then
    # The targets, each `not measured`.
    [ -n "$bench" ] && bounded 60 "$here/bin/bench-cuda"
    fail "$devices"
fi

# A loader that was told of another driver would make this a rehearsal without a word.
if [ -z "$simulate" ] && grep -q 'software device' <<<"$devices"; then
    fail "the software driver answers instead of a real one: see LD_LIBRARY_PATH and LD_PRELOAD"
fi

mkdir -p "$out" || fail "could not make $out"
for file in machine summary tests answers answers-errors bench; do
    rm -f "$out/$file.txt" "$out/$file.json"
done
{
    echo "date: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    [ -n "$simulate" ] && echo 'driver: the software driver; nothing here was seen on a GPU'
    [ -z "$simulate" ] && [ -r /proc/driver/nvidia/version ] && head -n 1 /proc/driver/nvidia/version
    echo "$devices"
    if [ -z "$simulate" ] && command -v nvidia-smi >/dev/null; then
        bounded 60 nvidia-smi --query-gpu=name,driver_version,uuid,memory.total,compute_mode,persistence_mode,mig.mode.current \
            --format=csv
        bounded 60 nvidia-smi topo -m
    fi
    echo "kernel: $(uname -r)"
    echo "glibc: $found"
    echo "processors: $(getconf _NPROCESSORS_ONLN)"
    echo "descriptors: $(ulimit -n)"
    sed 's/^/packed with /' "$here/pack.txt"
} >"$out/machine.txt" 2>&1
cat "$out/machine.txt"

all=0 ran=0 failed=0 software=0 lacking=0
: >"$out/tests.txt"

# Runs a test binary; counts what ran, what failed, and what could not run here.
run_tests() {
    local name=$1 seconds=$2 log status listed passed ended here_ran broken n_software n_lacking
    log=$(mktemp) || fail 'no temporary file'
    listed=$(bounded 60 "$here/bin/$name" --list 2>/dev/null | grep -c ': test$')
    bounded "$seconds" "$here/bin/$name" --test-threads="$jobs" --show-output >"$log" 2>&1
    status=$?
    passed=$(sed -n 's/^test result: .* \([0-9]*\) passed;.*/\1/p' "$log" | tail -n 1)
    # One that was killed has no such line: what it had come by has run, and all that has not passed has failed. Which of these
    # tests could not run here it would have said at the end.
    ended=$listed
    if [ -z "$passed" ]; then
        passed=$(grep -c '^test .* ok$' "$log")
        ended=$((passed + $(grep -c '^test .* FAILED$' "$log")))
    fi
    # A test may say it more than once.
    n_software=$(not_run "$log" | grep -c ' the software driver$')
    n_lacking=$(not_run "$log" | grep -vc ' the software driver$')
    here_ran=$((ended - n_software - n_lacking))
    broken=$((listed - passed))
    [ "$status" -ne 0 ] && [ "$broken" -eq 0 ] && broken=1
    echo "$name: $here_ran of $((listed - n_software)) ran, $broken failed;" \
        "$n_software more need the software driver"
    not_run "$log" | grep -v ' the software driver$' | sed 's/^/  not run: /'
    failures "$log" | sed 's/^/  FAILED: /'
    [ "$status" -eq 124 ] && echo "  $name was killed after $seconds s"
    { echo "== $name, status $status"; cat "$log"; } >>"$out/tests.txt"
    rm -f "$log"
    all=$((all + listed - n_software)) ran=$((ran + here_ran))
    failed=$((failed + broken)) software=$((software + n_software)) lacking=$((lacking + n_lacking))
}

# The tests that failed: the list at the end, or, of a binary that was killed, what it has said so far.
failures() {
    if grep -q '^test result: ' "$1"; then
        awk '/^failures:$/ { n = 0; next } /^    [^ ]+$/ { names[n++] = $1; next } /^test result: ok/ { n = 0 }
             END { for (i = 0; i < n; i++) print names[i] }' "$1"
    else
        sed -n 's/^test \(.*\) \.\.\. .*FAILED$/\1/p' "$1"
    fi
}

# The tests that were not run, each with what it needs.
not_run() {
    awk '/^---- .* stdout ----$/ { name = $2 }
         /^NOT RUN: needs / && !(name in seen) { seen[name] = 1; sub(/^NOT RUN: needs /, ""); print name " needs " $0 }' "$1"
}

run_example() {
    local name=$1 seconds=$2 status
    shift 2
    echo "== $name $*" >>"$out/tests.txt"
    bounded "$seconds" "$here/bin/$name" "$@" >>"$out/tests.txt" 2>&1
    status=$?
    all=$((all + 1)) ran=$((ran + 1))
    if [ "$status" -eq 0 ]; then
        echo "$name: ran"
    else
        failed=$((failed + 1))
        echo "$name: FAILED with status $status"
    fi
}

while read -r kind name seconds arguments; do
    # shellcheck disable=SC2086
    case $kind in
        test) run_tests "$name" "$seconds" ;;
        example) run_example "$name" "$seconds" $arguments ;;
    esac
done <"$here/programs.txt" > >(tee "$out/summary.txt")
wait $!

if [ -x "$here/bin/answers" ]; then
    echo
    # An answer that does not come within these seconds is one, too.
    TENSORFERRY_TEST_DEADLINE=20 bounded 1200 "$here/bin/answers" --date "$(date -u +%Y-%m-%d)" \
        --out "$out/answers.json" 2>"$out/answers-errors.txt" | tee "$out/answers.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || { failed=$((failed + 1)); echo 'answers: FAILED'; }
fi

if [ -n "$bench" ] && [ -x "$here/bin/bench-cuda" ]; then
    echo
    few=() torch=()
    [ -n "$simulate" ] && few=(--quick --max-mib 4)
    [ -n "$python" ] && torch=(--python "$python" --script "$here/python/device_tensors.py")
    bounded 1500 "$here/bin/bench-cuda" --json "$out/bench.json" $check "${few[@]}" "${torch[@]}" 2>&1 | tee "$out/bench.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || { failed=$((failed + 1)); echo 'bench: FAILED'; }
fi

{
    echo
    [ "$software" -gt 0 ] && echo "$software tests more need the software driver"
    [ "$lacking" -gt 0 ] && echo "$lacking tests did not run, because this machine lacks what they need"
    if [ "$failed" -gt 0 ]; then
        echo 'what failed is told beside this file'
        echo "$word: $ran of $all ran, $failed FAILED"
    else
        echo "$word: $ran of $all ran"
    fi
} | tee -a "$out/summary.txt"
[ "$failed" -eq 0 ] && [ "$ran" -gt 0 ]
