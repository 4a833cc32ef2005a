#!/usr/bin/env bash
# Outside suites on the mount, as root: pjdfstest (what POSIX says of file systems) and fsx (random changes of one file,
# compared with memory). Fetches both in pinned versions, mounts, runs, judges the images with btrfs check, prints counts,
# and fails on anything that tools/suites/pjdfstest.excluded does not name.
#
#   SEEDS="1 2 …"     fsx: a run of each seed with each set of options (default: 1)
#   OPERATIONS=N      fsx: operations in a run (default: 100000)
#   ONLY=pjdfstest|fsx
#   VLINDER=PROGRAM   a built program, instead of a release build
set -euo pipefail
cd "$(dirname "$0")/.."

PJDFSTEST_VERSION=0.2.2
FSX_VERSION=0.3.2
SEEDS=${SEEDS:-1}
OPERATIONS=${OPERATIONS:-100000}
ONLY=${ONLY:-}
# Of each cache mode and each way that data are written; the last ones meet flushes of small transactions.
FSX_OPTIONS=("" "writeback=off" "compress=zstd" "nodatacow,max_inline=0" "compress-force=lzo,dirty=1m,commit=1"
    "writeback=off,compress-force=zlib,dirty=1m,commit=1")
PJDFSTEST_OPTIONS=("allow_other" "allow_other,writeback=off")

fail() { printf 'suites: %s\n' "$*" >&2; exit 1; }

[ $# -eq 0 ] || fail "takes no arguments but variables: ONLY=fsx SEEDS=1 make suites"
case $OPERATIONS in *[!0-9]* | '') fail "OPERATIONS=$OPERATIONS is no number" ;; esac
case $SEEDS in *[!0-9\ ]*) fail "SEEDS=$SEEDS is no list of numbers" ;; esac
case $ONLY in '' | pjdfstest | fsx) ;; *) fail "ONLY=$ONLY is neither pjdfstest nor fsx" ;; esac

# fetch CRATE VERSION: installs a crate's program once.
fetch() {
    local program=$suites/bin/$1
    [ "$("$program" --version 2>/dev/null)" = "$1 $2" ] && return
    echo "--- fetching $1 $2"
    cargo install --quiet --locked --force --root "$suites" --target-dir "$suites/build" "$1@$2"
    [ "$("$program" --version)" = "$1 $2" ] || fail "$1 $2 says that it is $("$program" --version)"
}

prepare() {
    [ "$(id -u)" -eq 0 ] || fail "needs root: it mounts, and the cases change users"
    for tool in cargo unshare mkfs.btrfs btrfs mount losetup cmp; do
        command -v "$tool" >/dev/null || fail "needs $tool"
    done
    local target
    target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    export suites=$target/suites
    if [ -z "${VLINDER:-}" ]; then
        cargo build --release --quiet --package vlinder-cli
        VLINDER=$target/release/vlinder
    fi
    VLINDER=$(realpath "$VLINDER")
    export VLINDER
    mkdir -p "$suites"
    fetch pjdfstest "$PJDFSTEST_VERSION"
    fetch fsx "$FSX_VERSION"
}

# mount(8) finds its helpers in /sbin alone; in a mount namespace of our own the helper can be there for the while.
install_helper() {
    local sbin
    sbin=$(realpath /sbin)
    mkdir "$work/sbin" "$work/others"
    mount --bind "$sbin" "$work/others"
    for program in "$work"/others/*; do ln -s "$program" "$work/sbin/"; done
    ln -s "$VLINDER" "$work/sbin/mount.fuse.vlinder"
    mount --bind "$work/sbin" "$sbin"
}

cleanup() {
    for place in mnt kernel; do
        ! mountpoint -q "$work/$place" || umount "$work/$place" || umount -l "$work/$place"
    done
    ! mountpoint -q "$(realpath /sbin)" || umount "$(realpath /sbin)"
    ! mountpoint -q "$work/others" || umount "$work/others"
    rm -rf "$work"
}

new_image() {
    rm -f "$work/image"
    "$VLINDER" mkfs --quiet -b 2G "$work/image"
}

judge() {
    btrfs check --readonly --check-data-csum "$work/image" >"$work/check.log" 2>&1 ||
        { cat "$work/check.log"; fail "btrfs check finds fault after $1"; }
}

excluded() { sed -n 's/^\([^# ]\+\) '"$1"' .*/\1/p' tools/suites/pjdfstest.excluded; }

pjdfstest_configuration() {
    local expected=$1 allow_remount=$2
    printf '[features]\nposix_fallocate = {}\nrename_ctime = {}\nstat_st_birthtime = {}\nutime_now = {}\nutimensat = {}\n'
    printf '[settings]\nnaptime = 0.02\nallow_remount = %s\nexpected_failures = [%s]\n' "$allow_remount" "$expected"
    printf '[dummy_auth]\nentries = [["nobody", "nogroup"], ["daemon", "daemon"]]\n'
}

# run_pjdfstest DIRECTORY EXPECTED REMOUNT CASES…: the report is left in $work/report, without its colours.
run_pjdfstest() {
    local directory=$1 expected=$2 allow_remount=$3 status=0
    shift 3
    mkdir -p "$work/second"
    pjdfstest_configuration "$expected" "$allow_remount" >"$work/pjdfstest.toml"
    chmod 755 "$directory"
    "$suites/bin/pjdfstest" -c "$work/pjdfstest.toml" -p "$directory" -s "$work/second" "$@" >"$work/coloured" 2>&1 || status=$?
    sed 's/\x1b\[[0-9;]*m//g' "$work/coloured" >"$work/report"
    return "$status"
}

# An exclusion stands only if the kernel's btrfs ends the same case in the same way.
check_exclusions() {
    truncate -s 1G "$work/kernel.image"
    mkfs.btrfs -q "$work/kernel.image" >/dev/null 2>&1
    mount -o loop "$work/kernel.image" "$work/kernel"
    local how name
    for how in failed skipped; do
        for name in $(excluded "$how"); do
            run_pjdfstest "$work/kernel" "" false --exact "pjdfstest::tests::$name" || true
            grep -qiE "^$name +$how" "$work/report" ||
                { cat "$work/report"; fail "$name is excluded, but the kernel's btrfs does not end it as $how"; }
            echo "excluded: $name ($how on the kernel's btrfs, too)"
        done
    done
    umount "$work/kernel"
}

# The cases that remount are a run of their own: some others leave a file open for writing, which keeps every file system
# from being made read-only.
pjdfstest_suite() {
    check_exclusions
    local expected options passed excluded
    expected=$(excluded failed | sed 's/.*/"&"/' | paste -sd,)
    for options in "${PJDFSTEST_OPTIONS[@]}"; do
        new_image
        "$VLINDER" mount -o "$options" "$work/image" "$work/mnt"
        run_pjdfstest "$work/mnt" "$expected" false || true
        cp "$work/report" "$work/all"
        run_pjdfstest "$work/mnt" "" true erofs || true
        for report in "$work/all" "$work/report"; do
            grep -q '^Summary' "$report" || { cat "$report"; fail "pjdfstest came to no end"; }
        done
        { grep -v '^[^ ]*::erofs_' "$work/all"; cat "$work/report"; } >"$work/both"
        if grep -A2 -E '^[^ ]+ +(FAILED|PASSED UNEXPECTEDLY)$' "$work/both"; then failures=$((failures + 1)); fi
        if ! diff <(excluded skipped | sort) <(sed -nE 's/^([^ ]+) +skipped$/\1/p' "$work/both" | sort); then
            echo "other cases are skipped than tools/suites/pjdfstest.excluded says"
            failures=$((failures + 1))
        fi
        passed=$(grep -cE '^[^ ]+ +ok$' "$work/both")
        excluded=$(grep -cE '^[^ ]+ +(failed as expected|skipped)$' "$work/both")
        "$VLINDER" umount "$work/mnt"
        judge "pjdfstest with $options"
        echo "pjdfstest -o $options: $passed passed," \
            "$(grep -cE '^[^ ]+ +(FAILED|PASSED UNEXPECTEDLY)$' "$work/both" || true) failed, $excluded excluded"
    done
}

# Meanwhile everything is made durable and snapshotted, again and again.
disturb() {
    local count=0
    while :; do
        "$VLINDER" filesystem sync "$work/mnt"
        "$VLINDER" subvolume snapshot -r "$work/mnt" "$work/mnt/snapshot-$count" >/dev/null
        [ "$count" -lt 4 ] || "$VLINDER" subvolume delete "$work/mnt/snapshot-$((count - 4))" >/dev/null
        count=$((count + 1))
        echo "$count" >"$work/snapshots"
        sleep 0.2
    done
}

fsx_run() {
    local seed=$1 options=$2 disturber
    new_image
    "$VLINDER" mount ${options:+-o "$options"} "$work/image" "$work/mnt"
    disturb &
    disturber=$!
    if ! "$suites/bin/fsx" -f tools/suites/fsx.toml -S "$seed" -N "$OPERATIONS" -P "$work" "$work/mnt/file" >"$work/fsx.log" 2>&1; then
        tail -n 30 "$work/fsx.log"
        failures=$((failures + 1))
        echo "FAILED fsx seed $seed -o '$options'"
    else
        passes=$((passes + 1))
        cp "$work/mnt/file" "$work/file"
    fi
    kill "$disturber"
    wait "$disturber" 2>/dev/null || true
    # A verb that the disturber had under way may still be there.
    for _ in 1 2 3 4 5 6 7 8 9 10; do "$VLINDER" umount "$work/mnt" 2>"$work/umount.log" && break; sleep 0.5; done
    ! mountpoint -q "$work/mnt" || { cat "$work/umount.log"; fail "the mount can't be unmounted"; }
    judge "fsx with seed $seed and options '$options'"
    "$VLINDER" cat "$work/image:/file" | cmp - "$work/file" || fail "what fsx left is not what the image holds"
    echo "fsx seed $seed -o '$options': $OPERATIONS operations, $(cat "$work/snapshots") snapshots meanwhile, image clean"
}

fsx_suite() {
    passes=0
    local seed options
    for seed in $SEEDS; do
        for options in "${FSX_OPTIONS[@]}"; do fsx_run "$seed" "$options"; done
    done
    echo "fsx: $passes passed, $failures failed, 0 excluded"
}

if [ -z "${VLINDER_SUITES_INSIDE:-}" ]; then
    prepare
    export VLINDER_SUITES_INSIDE=yes
    exec unshare --mount --propagation private tools/suites.sh
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/vlinder-suites.XXXXXX")
trap cleanup EXIT
chmod 755 "$work"
mkdir "$work/mnt" "$work/kernel"
install_helper
failures=0
[ "$ONLY" = fsx ] || pjdfstest_suite
[ "$ONLY" = pjdfstest ] || fsx_suite
[ "$failures" -eq 0 ] || fail "$failures runs failed"
