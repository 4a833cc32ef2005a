#!/usr/bin/env bash
# make coverage: which branches of `format` and `check` the tests of these two and the kept inputs of the fuzz targets take.
#
# REPORT    where the page is written (default: standard output); the two percentages come last, on standard error
# INPUTS    a directory of inputs that a fuzzer kept (target/fuzz/corpus), replayed besides (default: none)
#
# It fails if a test fails, if a crate has less than 95 %, or if tools/coverage.toml does not give the reason for each side that
# is left. Where a test lacks something of the machine it fails, for the figures would be of something else; VLINDER_REQUIRE=
# (empty) skips such tests.
#
# To install: python3 (3.11 or later), llvm-profdata and llvm-cov of the LLVM that rustc has (Debian: llvm-22 for Rust 1.95, or
# `rustup component add llvm-tools`), and what the tests need (.ci/run). Branches are counted by an option of rustc that is not
# stable yet, turned on here for this one build, which has a directory of its own in target/coverage.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'coverage: %s\n' "$*" >&2; exit 2; }
[ $# -eq 0 ] || fail "takes no arguments but variables: REPORT=docs/coverage.md make coverage"
[ -z "${INPUTS:-}" ] || [ -d "$INPUTS" ] || fail "INPUTS=$INPUTS is no directory"
[ -d "$(dirname "${REPORT:-.}")" ] || fail "REPORT=$REPORT lies in no directory that is there"

VERSION=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
HOST=$(rustc -vV | sed -n 's/^host: //p')
find_tool() {
    command -v "$1-$VERSION" || command -v "$(rustc --print sysroot)/lib/rustlib/$HOST/bin/$1" || {
        echo "$1 of LLVM $VERSION is missing: apt-get install llvm-$VERSION, or rustup component add llvm-tools" >&2
        exit 2
    }
}
PROFDATA=$(find_tool llvm-profdata)
COV=$(find_tool llvm-cov)
WORK=${CARGO_TARGET_DIR:-target}/coverage
mkdir -p "$WORK"
WORK=$(cd "$WORK" && pwd)
rm -rf "$WORK/profiles"

export CARGO_TARGET_DIR=$WORK RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Cinstrument-coverage -Zcoverage-options=branch"
export LLVM_PROFILE_FILE="$WORK/profiles/%p-%m.profraw"
export VLINDER_REQUIRE=${VLINDER_REQUIRE-all}
packages=(-p vlinder-format -p vlinder-check -p vlinder-fuzz)
cargo test --quiet "${packages[@]}" >"$WORK/tests.log" 2>&1 || {
    tail -n 60 "$WORK/tests.log" >&2
    echo "The tests fail, so that nothing is measured: $WORK/tests.log" >&2
    exit 1
}
# Only the programs of this build: what lies in the directory besides may be older.
mapfile -t programs < <(cargo test --quiet --no-run --message-format=json "${packages[@]}" |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
if [ -n "${INPUTS:-}" ]; then
    find "$INPUTS" -type f -print0 |
        xargs -0 -n 200 cargo run --quiet -p vlinder-fuzz --bin replay -- >>"$WORK/tests.log" 2>&1 || {
        tail -n 20 "$WORK/tests.log" >&2
        exit 1
    }
    programs+=("$WORK/debug/replay")
fi
"$PROFDATA" merge --sparse "$WORK"/profiles/*.profraw -o "$WORK/merged.profdata"
objects=()
for program in "${programs[@]}"; do objects+=(--object "$program"); done
"$COV" export --format=text --instr-profile "$WORK/merged.profdata" "${objects[@]}" >"$WORK/coverage.json" 2>"$WORK/export.log" || {
    cat "$WORK/export.log" >&2
    exit 1
}
# llvm-cov leaves out "mismatched" functions. Where the hash is 0 that is the empty form that a crate has of a function which is used in
# other crates alone, whose forms count; a function of ours with another hash would be missed.
"$COV" report --dump --instr-profile "$WORK/merged.profdata" "${objects[@]}" 2>&1 >/dev/null |
    grep hash-mismatch >"$WORK/mismatched.txt" || true
if grep 'vlinder_\(format\|check\)' "$WORK/mismatched.txt" | grep -v 'hash = 0x0$' >&2; then
    echo "llvm-cov leaves out functions of ours" >&2
    exit 1
fi
python3 tools/coverage.py "$WORK/coverage.json" "${REPORT:-/dev/stdout}"
