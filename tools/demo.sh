#!/usr/bin/env bash
# The main job on real input, told as a short story: an image is made, worked in, snapshotted, checked.
#
# DEMO_SOURCE names the tree to work on (at least 2,000 files); otherwise the first large tree below /usr is taken.
# Without root or FUSE the story is told offline, on IMAGE:/; it says first what it leaves out and how to get it.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -eq 0 ] || { echo "demo: takes no arguments; DEMO_SOURCE=DIR make demo works on another tree" >&2; exit 2; }
[ -z "${DEMO_SOURCE:-}" ] || [ -d "$DEMO_SOURCE" ] || { echo "demo: DEMO_SOURCE=$DEMO_SOURCE is no directory" >&2; exit 2; }
cargo build --release --quiet --package vlinder-cli
export PATH="$PWD/${CARGO_TARGET_DIR:-target}/release:$PATH"
[ -n "${CARGO_TARGET_DIR:-}" ] && export PATH="$CARGO_TARGET_DIR/release:$PATH"

work=$(mktemp -d "${TMPDIR:-/tmp}/vlinder-demo.XXXXXX")
image=$work/image mountpoint=$work/mnt
mkdir "$mountpoint"
cleanup() {
    mountpoint -q "$mountpoint" && { vlinder umount "$mountpoint" || umount -l "$mountpoint" || true; }
    [ -d "$work/kernel" ] && mountpoint -q "$work/kernel" && umount "$work/kernel"
    rm -rf "$work"
}
trap cleanup EXIT

bold= plain=
[ -t 1 ] && bold=$'\033[1m' plain=$'\033[0m'
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() { printf '  $ %s\n' "$*"; "$@"; }
have() { command -v "$1" >/dev/null 2>&1; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# Where the files come from: a copy, so that nothing changes under us.
source=${DEMO_SOURCE:-}
if [ -z "$source" ]; then
    for candidate in /usr/share/doc /usr/share/perl /usr/share/zoneinfo /usr/include /usr/share /usr/lib; do
        [ -d "$candidate" ] || continue
        [ "$(find "$candidate" -xdev -type f 2>/dev/null | head -n 2500 | wc -l)" -ge 2500 ] && { source=$candidate; break; }
    done
fi
[ -n "$source" ] || fail "no tree of 2,000 files found; name one: DEMO_SOURCE=DIR make demo"
mkdir "$work/tree"
(cd "$source" && find . -xdev \( -type f -o -type l -o -type d \) -readable 2>/dev/null | LC_ALL=C sort | head -n 6000 \
    | tar --create --no-recursion --files-from=- --file=- 2>/dev/null) | tar --extract --file=- --directory="$work/tree" 2>/dev/null || true
chmod -R u+rwX "$work/tree"
files=$(find "$work/tree" -type f | wc -l)
[ "$files" -ge 2000 ] || fail "$source has only $files readable files; 2,000 are needed (DEMO_SOURCE=DIR)"

mounted=yes left_out=()
if [ ! -r /dev/fuse ] || [ ! -w /dev/fuse ]; then
    mounted=no; left_out+=("the mount: /dev/fuse cannot be opened (as root: modprobe fuse; chmod 666 /dev/fuse)")
elif [ "$(id -u)" != 0 ] && ! have fusermount3; then
    mounted=no; left_out+=("the mount: fusermount3 is missing (Debian: apt-get install fuse3)")
fi
have btrfs || left_out+=("btrfs check: btrfs-progs is missing (Debian: apt-get install btrfs-progs)")
kernel=no
if [ "$(id -u)" = 0 ] && { grep -qw btrfs /proc/filesystems || modprobe btrfs 2>/dev/null; }; then kernel=yes
else left_out+=("the kernel's own look at the image: it needs root and the kernel's btrfs"); fi
if [ "${#left_out[@]}" -gt 0 ]; then
    say "This machine lets me show less. Left out:"
    printf '  - %s\n' "${left_out[@]}"
fi

say "1. An image from a directory of $files files ($source), without the kernel's driver"
run vlinder mkfs --label demo --rootdir "$work/tree" -b 2G "$image"
run vlinder ls "$image:/" | awk 'NR <= 6'

compare() { # compare WHAT LEFT RIGHT
    diff --recursive --no-dereference "$2" "$3" >"$work/diff" 2>&1 || { head -n 20 "$work/diff" >&2; fail "$1 differ"; }
    printf '  %s are equal\n' "$1"
}

first_name() { ls "$1" | awk 'NR == 1'; }

edit() { # edit ROOT: what people do to files
    printf '  cp -r, tar --create, tar --extract, sed -i\n'
    cp -r "$1/$(first_name "$1")" "$1/copied"
    tar --create --file="$1/archive.tar" --directory="$work/tree" .
    mkdir "$1/unpacked" && tar --extract --file="$1/archive.tar" --directory="$1/unpacked"
    edited=$(find "$1/unpacked" -type f -size +1k ! -name '*.gz' | LC_ALL=C sort | awk 'NR == 1')
    sed -i '1s/^/edited in place: /' "$edited"
    if have git; then
        git -C "$1" init --quiet repo 2>/dev/null
        cp -r "$work/tree/$(first_name "$work/tree")" "$1/repo/content"
        git -C "$1/repo" add --all && git -C "$1/repo" -c user.name=demo -c user.email=demo@example.org commit --quiet -m first
        git -C "$1/repo" fsck --no-progress >/dev/null
        printf '  git: %s objects committed and checked\n' "$(git -C "$1/repo" count-objects | cut -d' ' -f1)"
    fi
    if have sqlite3; then
        sqlite3 "$1/notes.db" "create table notes(n integer, t text); with recursive c(n) as (select 1 union all select n+1 from c where n<5000) insert into notes select n, hex(randomblob(32)) from c; pragma integrity_check;" | sed 's/^/  sqlite3: integrity /'
    elif have python3; then
        python3 -c 'import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute("create table notes(n,t)"); c.executemany("insert into notes values(?,?)", ((i,str(i)*9) for i in range(5000))); c.commit(); print("  sqlite (python): integrity", c.execute("pragma integrity_check").fetchone()[0])' "$1/notes.db"
    fi
}

if [ "$mounted" = yes ]; then
    say "2. Mounted, and worked in with ordinary programs"
    run vlinder mount "$image" "$mountpoint"
    compare "the source and what the image shows of it" "$work/tree" "$mountpoint"
    edit "$mountpoint"

    say "3. A snapshot, and then deletions"
    run vlinder subvolume snapshot -r "$mountpoint" "$mountpoint/before"
    cp -r "$mountpoint/unpacked" "$work/kept"
    rm -rf "$mountpoint/unpacked" "$mountpoint/archive.tar" "$mountpoint/copied"
    compare "what was deleted and the snapshot's copy of it" "$work/kept" "$mountpoint/before/unpacked"
    run vlinder subvolume list "$mountpoint"
    run vlinder filesystem df "$mountpoint"

    say "4. Unmounted: from here on, all of it is on disk"
    run vlinder umount "$mountpoint"
else
    say "2. Worked in offline, on IMAGE:/"
    run vlinder mkdir "$image:/work"
    run vlinder cp -r "$work/tree" "$image:/work/copy"
    run vlinder mv "$image:/work/copy" "$image:/work/tree"

    say "3. A snapshot, and then deletions"
    run vlinder subvolume snapshot -r "$image:/" "$image:/before"
    run vlinder rm -r "$image:/work"
    run vlinder cp -r "$image:/before/work/tree" "$work/kept"
    compare "what was deleted and the snapshot's copy of it" "$work/tree" "$work/kept"
    run vlinder subvolume list "$image:/"
fi

if have btrfs; then
    say "5. btrfs check"
    printf '  $ btrfs check --readonly image\n'
    btrfs check --readonly "$image" >"$work/check" 2>&1 || { cat "$work/check" >&2; fail "btrfs check found errors"; }
    # Where `btrfs` is a link to vlinder, it says so in other words.
    { grep -E 'no error found|found .* bytes used' "$work/check" || tail -n 1 "$work/check"; } | sed 's/^/  /'
fi
if [ "$kernel" = yes ]; then
    say "6. The kernel's driver, reading what vlinder wrote"
    mkdir "$work/kernel"
    run mount -o loop,ro "$image" "$work/kernel"
    if [ "$mounted" = yes ]; then
        compare "the snapshot as vlinder and as Linux show it" "$work/kept" "$work/kernel/before/unpacked"
    else
        compare "the snapshot as vlinder and as Linux show it" "$work/tree" "$work/kernel/before/work/tree"
    fi
    run umount "$work/kernel"
fi
say "Done: made, edited, snapshotted, and everybody agrees."
