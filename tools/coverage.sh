#!/usr/bin/env bash
# make coverage: which branches of `format` and `check` their tests and the fuzz corpus take.
#
# REPORT    where the page is written (default: standard output)
# INPUTS    a directory of inputs that a fuzzer kept (target/fuzz/corpus), replayed besides (default: none)
#
# Needs llvm-profdata and llvm-cov of rustc's LLVM (Debian: llvm-22). Branches are counted by an option of rustc that is not
# stable yet, turned on here for this one build.
set -eu
cd "$(dirname "$0")/.."

VERSION=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
PROFDATA=$(command -v "llvm-profdata-$VERSION" || command -v llvm-profdata) || {
    echo "llvm-profdata of LLVM $VERSION is missing: apt-get install llvm-$VERSION" >&2
    exit 2
}
COV=$(command -v "llvm-cov-$VERSION" || command -v llvm-cov)
WORK=${CARGO_TARGET_DIR:-target}/coverage
mkdir -p "$WORK"
WORK=$(cd "$WORK" && pwd)
rm -rf "$WORK/profiles"

export CARGO_TARGET_DIR=$WORK RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Cinstrument-coverage -Zcoverage-options=branch"
export LLVM_PROFILE_FILE="$WORK/profiles/%p-%m.profraw"
packages=(-p vlinder-format -p vlinder-check -p vlinder-fuzz)
cargo test --quiet "${packages[@]}" >"$WORK/tests.log" 2>&1 || {
    tail -n 40 "$WORK/tests.log" >&2
    exit 1
}
programs=$(cargo test --no-run --message-format=json "${packages[@]}" 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
if [ -n "${INPUTS:-}" ]; then
    find "$INPUTS" -type f -print0 |
        xargs -0 -n 200 cargo run --quiet -p vlinder-fuzz --bin replay -- >>"$WORK/tests.log" 2>&1 || true
fi
"$PROFDATA" merge --sparse "$WORK"/profiles/*.profraw -o "$WORK/merged.profdata"
objects=()
for program in $programs; do objects+=(--object "$program"); done
"$COV" export --format=text --instr-profile "$WORK/merged.profdata" "${objects[@]}" \
    --ignore-filename-regex '/(tests?|testkit|registry|rustc)/|_tests?\.rs|tests\.rs' >"$WORK/coverage.json"
python3 tools/coverage.py "$WORK/coverage.json" >"${REPORT:-/dev/stdout}"
