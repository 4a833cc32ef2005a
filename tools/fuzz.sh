#!/usr/bin/env bash
# make fuzz MINUTES=n TARGET=x: coverage-guided fuzzing, and a table of executions and coverage for each target.
#
# MINUTES   for all targets together, at least two seconds each (default 5)
# TARGET    names, separated by commas; or items, structures, codecs, images, all (default all)
# SEED      of libFuzzer's choices (default: another each time)
# EXECUTIONS=n  instead of a time: so many inputs for each decoder and codec, a hundredth of that for whole file systems.
#           With a seed, and nothing kept from an earlier run, the same inputs each time. One program runs them all, which
#           is slower and built sooner than two
# BTRFS_CHECK=n  the target operations shows every n-th image to `btrfs check` as well (default 200)
#
# Needs an ordinary Rust toolchain and a C++ compiler (for libFuzzer). Inputs that open new paths are kept under
# target/fuzz/corpus, so that the next run goes on from there; figures add up in target/fuzz/figures.tsv. An input that
# finds something ends its target's run and is left under target/fuzz/found: mend it, and put it under fuzz/corpus.
set -u
cd "$(dirname "$0")/.." || exit 2

MINUTES=${MINUTES:-5}
TARGET=${TARGET:-all}
WORK=${CARGO_TARGET_DIR:-target}/fuzz

fail() { printf 'fuzz: %s\n' "$*" >&2; exit 2; }
[ $# -eq 0 ] || fail "takes no arguments but variables: MINUTES=5 TARGET=items make fuzz"
for name in MINUTES SEED EXECUTIONS BTRFS_CHECK; do
    case ${!name-} in *[!0-9]*) fail "$name=${!name} is no number" ;; esac
done
HOST=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "$WORK/found" || exit 2
WORK=$(cd "$WORK" && pwd)

# build DIRECTORY FEATURES...: builds the program for libFuzzer; its path on standard output.
build() {
    local directory=$WORK/$1
    shift
    RUSTC_WRAPPER="$PWD/tools/fuzz-rustc.sh" CARGO_TARGET_DIR=$directory CARGO_INCREMENTAL=0 \
        cargo build --quiet --package vlinder-fuzz --bin fuzz --profile fuzz --target "$HOST" \
        --no-default-features "$@" >&2 || return 1
    echo "$directory/$HOST/fuzz"
}

targets=$(cargo run --quiet --package vlinder-fuzz --bin targets -- "$TARGET") || exit 2
cargo run --quiet --package vlinder-fuzz --bin seeds -- "$WORK/seeds" || exit 1
small= large=
if [ -n "${EXECUTIONS:-}" ]; then
    large=$(build engine --features libfuzzer,engine) || exit 1
    small=$large
fi
for target in $targets; do
    case $target in
    image | operations | receive) [ -n "$large" ] || large=$(build engine --features libfuzzer,engine) || exit 1 ;;
    *) [ -n "$small" ] || small=$(build decoders --features libfuzzer) || exit 1 ;;
    esac
done

count=$(wc -w <<<"$targets")
seconds=$((MINUTES * 60 / count))
[ "$seconds" -ge 2 ] || seconds=2
[ -z "${EXECUTIONS:-}" ] || seconds=120
export VLINDER_FUZZ_BTRFS_CHECK=${BTRFS_CHECK:-200}
failed=0
printf '%-24s %14s %10s %10s %10s  %s\n' target executions per_second edges features found
for target in $targets; do
    corpus=$WORK/corpus/$target
    log=$WORK/$target.log
    mkdir -p "$corpus" "$WORK/seeds/$target"
    from=("$corpus" "$WORK/seeds/$target")
    [ ! -d "fuzz/corpus/$target" ] || from+=("fuzz/corpus/$target")
    program=$small
    runs=${EXECUTIONS:--1}
    choosing=()
    case $target in image | operations | receive)
        program=$large
        # So many counters are met in one run that weighing inputs by how rare theirs are took two thirds of all time.
        choosing=(-entropic=0)
        [ "$runs" -lt 0 ] || runs=$((runs / 100))
        ;;
    esac
    VLINDER_FUZZ_TARGET=$target "$program/fuzz" -max_total_time="$seconds" -runs="$runs" -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
        ${SEED:+-seed=$SEED} "${choosing[@]}" -print_final_stats=1 -artifact_prefix="$WORK/found/$target-" \
        "${from[@]}" >"$log" 2>&1
    status=$?
    found=-
    if [ "$status" -ne 0 ]; then
        found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        failed=1
        # What was found may be all that a machine elsewhere leaves of it.
        grep -A 3 -E 'panicked at|SUMMARY: ' "$log"
        [ ! -f "$found" ] || base64 "$found"
    fi
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    # A run that found something prints no figures at its end: the last ones on the way count.
    last=$(grep -E '^#[0-9]+' "$log" | tail -n 1)
    [ -n "$executions" ] || executions=$(sed -E 's/^#([0-9]+).*/\1/' <<<"$last")
    edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2)
    features=$(grep -oE 'ft: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2)
    per_second=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    printf '%-24s %14s %10s %10s %10s  %s\n' "$target" "${executions:-0}" "${per_second:--}" "${edges:-0}" \
        "${features:-0}" "$found"
    printf '%s\t%s\t%s\t%s\n' "$target" "${executions:-0}" "${edges:-0}" "${features:-0}" >>"$WORK/figures.tsv"
done
awk -F'\t' '{ executions[$1] += $2; if ($3 > edges[$1]) edges[$1] = $3 }
    END { for (target in executions) printf "%s\t%d\t%d\n", target, executions[target], edges[target] }' \
    "$WORK/figures.tsv" | sort >"$WORK/totals.tsv"
echo "all runs so far (target, executions, edges): $WORK/totals.tsv"
exit $failed
