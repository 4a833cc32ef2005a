#!/usr/bin/env bash
# Twelve fio jobs that verify what they read work on one image through the engine; they are killed (SIGKILL) and go on,
# ROUNDS times (50). After each kill both checkers judge the image, and every block of every file is read: it has to carry
# a right checksum and its own offset, be it the old one or the new one.
# Needs `make fio-engine` and btrfs-progs. JOB_MIB is the size of a job's file (16), SEED chooses the moments of the kills.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-50}
mebibytes=${JOB_MIB:-16}
RANDOM=${SEED:-1}

fail() { printf 'fio-jobs: %s\n' "$*" >&2; exit 2; }
[ $# -eq 0 ] || fail "takes no arguments but variables: ROUNDS=5 tools/fio-jobs.sh"
for name in ROUNDS JOB_MIB SEED; do
    case ${!name-} in *[!0-9]*) fail "$name=${!name} is no number" ;; esac
done
for tool in fio btrfs; do
    command -v "$tool" >/dev/null || fail "needs $tool: install fio and btrfs-progs"
done
[ -d "${CARGO_TARGET_DIR:-target}" ] || fail "nothing is built yet: make fio-engine"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
engine=$target/fio-engine/vlinder.so
vlinder=$target/release/vlinder
[ -e "$engine" ] || fail "$engine is missing: make fio-engine"
cargo build --release --quiet -p vlinder-cli

scratch=$(mktemp -d /tmp/vlinder-fio.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
image=$scratch/image
truncate -s 4G "$image"
"$vlinder" mkfs --force "$image" >/dev/null

# Jobs 1 to 12, each with its file: half of them through memory with an fsync now and then, half directly.
jobs() {
    for job in $(seq 12); do
        echo "--name=job$job --filename=/job$job --direct=$((job % 2)) $*"
    done
}
run() { # run LOG ARGUMENTS...: jobs with what all of them have
    local log=$1
    shift
    # shellcheck disable=SC2046 # words are what is wanted
    (cd "$scratch" && exec fio --ioengine="external:$engine" --thread --image="$image" --size="${mebibytes}M" --bs=4k \
        --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_state_save=0 $(jobs "$@")) >"$scratch/$log" 2>&1
}
judge() {
    "$vlinder" check --check-data-csum "$image" >"$scratch/judge" 2>&1 || { cat "$scratch/judge"; return 1; }
    btrfs check --check-data-csum "$image" >"$scratch/judge" 2>&1 || { cat "$scratch/judge"; return 1; }
    run verify --rw=read --do_verify=1 || { tail -n 40 "$scratch/verify"; return 1; }
}

run fill --rw=write --do_verify=0 --end_fsync=1 || { cat "$scratch/fill"; exit 1; }
judge || { echo "fio-jobs: the first filling is not what was written" >&2; exit 1; }
replayed=0
for round in $(seq "$rounds"); do
    run work --rw=randwrite --do_verify=0 --fsync=64 --time_based=1 --runtime=60 --randseed="$RANDOM" &
    runner=$!
    sleep "$((RANDOM % 2)).$((RANDOM % 10))$((RANDOM % 10))"
    sleep 0.3
    pkill -KILL --parent "$runner" --exact fio 2>/dev/null || kill -KILL "$runner"
    # The shell's word about the kill is not wanted.
    if { wait "$runner"; } 2>/dev/null; then
        echo "fio-jobs: round $round ended before it was killed" >&2
        cat "$scratch/work"
        exit 1
    fi
    if "$vlinder" inspect-internal dump-super "$image" | grep -q '^log_root[[:space:]]*[1-9]'; then
        replayed=$((replayed + 1))
    fi
    judge || { echo "fio-jobs: round $round, seed ${SEED:-1}" >&2; exit 1; }
    printf '\r%d of %d' "$round" "$rounds" >&2
done
echo >&2

# The verification is one that can fail: a block without a header of its own is found.
(cd "$scratch" && fio --ioengine="external:$engine" --thread --image="$image" --name=control --filename=/job7 --rw=write \
    --bs=4k --size=4k --offset=64k) >"$scratch/control" 2>&1 || { cat "$scratch/control"; exit 1; }
if run verify --rw=read --do_verify=1; then
    echo "fio-jobs: a block that was overwritten with something else passed the verification" >&2
    exit 1
fi
blocks=$((12 * mebibytes * 256))
echo "12 jobs were killed and resumed $rounds times ($replayed with a log to replay); after each, both checkers were content and $blocks blocks verified"
