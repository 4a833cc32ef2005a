#!/bin/sh
# What cargo runs instead of the compiler for `make fuzz`: this project's own crates are built with the counters that
# libFuzzer reads, what they depend on is not. (An ordinary toolchain has the pass, only no flag of its own for it.)
[ $# -gt 0 ] || { echo "fuzz-rustc.sh: cargo calls it in place of rustc (RUSTC_WRAPPER); run make fuzz" >&2; exit 2; }
case ${CARGO_PKG_NAME-} in
vlinder-*)
    exec "$@" --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
esac
exec "$@"
