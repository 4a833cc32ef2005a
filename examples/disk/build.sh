#!/bin/sh
# Makes a disk image with an EFI partition and a Btrfs that holds a directory, as an ordinary user and without a
# loop device: build.sh DIRECTORY disk.raw. DIRECTORY/home becomes a subvolume. Needs vlinder and sfdisk
# (util-linux; Debian has it in /usr/sbin).
set -eu

[ $# -eq 2 ] || { echo "usage: build.sh DIRECTORY DISK" >&2; exit 2; }
directory=$1 disk=$2

[ -d "$directory/home" ] || { echo "$directory/home is no directory: make it, it becomes a subvolume" >&2; exit 1; }
[ ! -e "$disk" ] || { echo "$disk is there already: remove it, or name another" >&2; exit 1; }
truncate -s 1G "$disk"
printf 'label: gpt\nsize=64M, type=U\ntype=L\n' | sfdisk --quiet "$disk"
vlinder mkfs --quiet --rootdir "$directory" --subvol rw:home "$disk@2"

# Changed afterwards: the only Btrfs of the disk needs no number.
echo disk | vlinder cp - "$disk:/hostname"
vlinder fstrim "$disk"
vlinder check "$disk"
