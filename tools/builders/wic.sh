#!/usr/bin/env bash
# tools/builders/wic.sh VLINDER DIRECTORY POKY: Yocto's wic makes a disk with vlinder as mkfs.btrfs, under pseudo.
#
# POKY is a checkout of poky (branch scarthgap, whose wic runs with the sfdisk of Debian 12); nothing is built with it. A tree is
# made under pseudo, with owners, modes and a device that the caller could not give it; wic makes a GPT disk of it with one
# Btrfs that is filled and one that is empty. Both checkers judge them, and vlinder tells owners and the device; as root, a
# mount of the kernel's compares contents and scrubs. Needs Debian's pseudo, parted, fdisk, gdisk, python3 and btrfs-progs. Runs as
# any user. Ends with 0 and a line of figures, or with what failed.
set -euo pipefail

fail() { printf 'wic.sh: %s\n' "$*" >&2; exit 1; }
[ $# -eq 3 ] || fail "give the command vlinder, a directory and a checkout of poky"
PATH=$PATH:/usr/sbin:/sbin
vlinder=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
poky=$(realpath "$3")
[ -e "$poky/scripts/wic" ] || fail "$poky/scripts/wic is not there: give a checkout of poky's branch scarthgap"
rm -rf "${work:?}"/{native,rootfs,pseudo,boot,out,vars,build}
mkdir -p "$work"/{native/usr/bin,native/usr/sbin,native/usr/lib,rootfs/etc,rootfs/dev,pseudo,boot,out,vars,build/conf}

# What wic calls comes from a sysroot: vlinder in place of btrfs-progs, the rest is the machine's.
ln -s "$vlinder" "$work/native/usr/sbin/mkfs.btrfs"
for tool in parted sfdisk sgdisk; do
    ln -s "$(command -v $tool)" "$work/native/usr/sbin/$tool"
done
library=$(dpkg -L libpseudo 2>/dev/null | grep -m1 '/libpseudo\.so$') || fail "pseudo is not installed"
for tool in pseudo pseudodb pseudolog; do ln -s "$(command -v $tool)" "$work/native/usr/bin/$tool"; done
# pseudo looks for its library below its prefix, which wic sets to the sysroot.
mkdir -p "$work/native${library%/*/*}"
ln -s "${library%/*}" "$work/native${library%/*}"
# Without paths to ignore wic has pseudo ignore the present directory, and with it the tree.
cat > "$work/vars/image.env" <<FILE
IMAGE_ROOTFS="$work/rootfs"
DEPLOY_DIR_IMAGE="$work/boot"
STAGING_DATADIR="$work/boot"
RECIPE_SYSROOT_NATIVE="$work/native"
IMAGE_NAME="image"
IMAGE_LINK_NAME="image"
TARGET_SYS="x86_64-poky-linux"
PSEUDO_IGNORE_PATHS="/proc,/sys"
FAKEROOTCMD="$work/native/usr/bin/pseudo"
FILE
cat > "$work/disk.wks" <<'FILE'
part / --source rootfs --fstype=btrfs --label root --align 1024 --fsuuid 11111111-2222-3333-4444-555555555555
part /data --fstype=btrfs --size 200M --label data --align 1024
bootloader --ptable gpt
FILE
cp -r /usr/share/doc/a* "$work/rootfs/"
export PSEUDO_PREFIX=$work/native/usr
PSEUDO_LOCALSTATEDIR=$work/pseudo PSEUDO_PASSWD=$work/rootfs "$work/native/usr/bin/pseudo" sh -euc '
    cd "$0/rootfs"
    chown -R 0:0 .
    echo wic > etc/hostname; echo secret > etc/shadow
    chown 0:42 etc/shadow; chmod 640 etc/shadow
    mknod dev/console c 5 1' "$work"

export BUILDDIR=$work/build BBPATH=$work/build
cd "$work"
python3 "$poky/scripts/wic" create disk.wks -e image -s -v vars -n "$work/native" -o out > log 2>&1 || fail "wic failed: see $work/log"
disk=$(echo out/*.direct)
mv "$disk" out/disk
"$vlinder" check out/disk@1 > check.1 2>&1 || fail "vlinder check: see $work/check.1"
"$vlinder" check out/disk@2 > check.2 2>&1 || fail "vlinder check: see $work/check.2"
place=$(sfdisk --json out/disk | python3 -c '
import json, sys
first = json.load(sys.stdin)["partitiontable"]["partitions"][0]
print("skip=%d count=%d" % (first["start"], first["size"]))')
# Two words for dd.
# shellcheck disable=SC2086
dd if=out/disk of=out/root bs=512 $place status=none
btrfs check out/root > check.progs 2>&1 || fail "btrfs check: see $work/check.progs"
told=$("$vlinder" ls -l out/disk@1:/etc out/disk@1:/dev)
grep -q '^-rw-r----- .* 0 42 .* shadow$' <<< "$told" || fail "shadow has another owner: $told"
grep -q '^crw.* 5, *1 .* console$' <<< "$told" || fail "console is no device: $told"
[ "$("$vlinder" cat out/disk@1:/etc/hostname)" = wic ] || fail "hostname has other content"
judged="both checkers"
if [ "$(id -u)" = 0 ]; then
    mkdir -p mount
    mount -o loop out/root mount
    same=yes
    # What only pseudo knows can't be compared with the tree.
    diff -r --no-dereference --exclude=console rootfs mount > differences || same=no
    btrfs scrub start -B mount > scrub || same=no
    umount mount
    [ $same = yes ] || fail "the kernel's mount differs: see $work/differences and $work/scrub"
    judged="both checkers, a mount and a scrub of the kernel's"
fi
printf 'wic made a disk of %s bytes with two Btrfs, %s files in the first: %s agree\n' \
    "$(stat -c %s out/disk)" "$(find rootfs -type f | wc -l)" "$judged"
