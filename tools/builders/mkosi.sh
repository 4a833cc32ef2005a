#!/usr/bin/env bash
# tools/builders/mkosi.sh VLINDER DIRECTORY: mkosi 25 and systemd-repart 257 make a disk with vlinder as mkfs.btrfs.
#
# mkosi and repart are Debian 13's, in a tree that mmdebstrap makes in DIRECTORY (2 GiB, kept for the next run); no other
# mkfs.btrfs is in it. The disk has one partition with subvolumes, filled without a mount (`mkfs.btrfs --rootdir`). Then
# both checkers, a mount of the kernel, a scrub and a writer judge it. Needs root, mmdebstrap, btrfs-progs and a mirror of
# Debian. Ends with 0 and a line of figures, or with what failed.
set -euo pipefail

fail() { printf 'mkosi.sh: %s\n' "$*" >&2; exit 1; }
[ $# -eq 2 ] || fail "give the command vlinder and a directory"
[ "$(id -u)" = 0 ] || fail "needs root, for chroot, loop devices and mounts"
vlinder=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
mirror=${MIRROR:-http://deb.debian.org/debian}

if [ ! -e "$work/root/usr/bin/mkosi" ]; then
    packages=mkosi,systemd-repart,dosfstools,mtools,uidmap,udev
    mmdebstrap --quiet --variant=apt --include=$packages trixie "$work/root" "$mirror"
    mmdebstrap --quiet --variant=essential trixie "$work/root/base" "$mirror"
    # mkosi copies what can be read, and would not end with what stands there.
    rm -rf "${work:?}"/root/base/dev/*
fi
install -m 755 "$vlinder" "$work/root/usr/bin/vlinder"
ln -sf /usr/bin/vlinder "$work/root/usr/sbin/mkfs.btrfs"
mkdir -p "$work/root/work/mkosi.repart" "$work/root/old"
cat > "$work/root/work/mkosi.conf" <<'END'
[Distribution]
Distribution=custom
[Output]
Format=disk
Output=image
[Content]
BaseTrees=/base
Bootable=no
END
cat > "$work/root/work/mkosi.repart/10-root.conf" <<'END'
[Partition]
Type=root
Format=btrfs
CopyFiles=/
Subvolumes=/home /var/log
Minimize=guess
END

# mkosi makes namespaces of its own, for which `/` has to be a mount point.
unshare --mount --propagation private bash -euc '
    mount --bind "$0/root" "$0/root"
    cd "$0/root"
    for tree in proc sys dev; do mount --rbind /$tree $tree; done
    pivot_root . old
    umount -l old
    cd /work
    exec mkosi --force build' "$work" > "$work/log" 2>&1 || fail "mkosi failed: see $work/log"
disk=$work/root/work/image.raw
grep -aq 'successfully formatted as btrfs' "$work/log" || fail "mkosi made no Btrfs: see $work/log"

"$vlinder" check "$disk" > "$work/check" 2>&1 || fail "vlinder check: see $work/check"
start=$(sfdisk --json "$disk" | sed -n 's/.*"start": *\([0-9]*\).*/\1/p' | head -1)
loop=$(losetup --find --show --offset $((start * 512)) "$disk")
trap 'umount "$work/mnt" 2>/dev/null || true; losetup --detach "$loop"' EXIT
judge() { btrfs check --check-data-csum "$loop" > "$work/check" 2>&1 || fail "btrfs check: see $work/check"; }
judge
mkdir -p "$work/mnt"
mount "$loop" "$work/mnt"
subvolumes=$(btrfs subvolume list "$work/mnt" | wc -l)
[ "$subvolumes" = 2 ] || fail "there are $subvolumes subvolumes, and not 2"
# Before the scrub, for which Linux makes chunks.
offered=$(df --output=avail -B1 "$work/mnt" | tail -1)
btrfs scrub start -B "$work/mnt" | grep -q 'no errors found' || fail "the scrub found errors"
# All files of the tree are there with their bytes, owners and modes; mkosi writes some of its own beside them.
missing=$(rsync --dry-run --archive --checksum --itemize-changes --omit-dir-times --no-times \
    "$work/root/base/usr/" "$work/mnt/usr/" | grep -c '^>f' || true)
files=$(find "$work/mnt" -type f | wc -l)
[ "$files" -gt 1000 ] || fail "there are $files files"
[ "$missing" -le 20 ] || fail "$missing files of /usr are not as they were"
echo more > "$work/mnt/more"
umount "$work/mnt"
judge
echo "mkosi $(chroot "$work/root" mkosi --version | cut -d' ' -f2): $files files, $(stat -c %s "$disk") bytes, \
$subvolumes subvolumes, $offered bytes left; $missing files of /usr changed by mkosi itself"
