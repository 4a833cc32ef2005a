#!/bin/sh
# bootable.sh DISK TREE
#
# Makes the disk image DISK, which boots by UEFI: a GPT with an EFI system partition, and a Btrfs with subvolumes and
# compression that holds TREE, the root directory of a system as a tar archive (also packed with gzip or zstd). An ordinary
# user can do all of it: nothing is mounted, and no loop device is needed. Owners, device nodes and extended attributes are
# those of the archive.
#
# A tree of Debian:   mmdebstrap --variant=minbase --include=linux-image-amd64,systemd-sysv,udev bookworm tree.tar
# Boots in qemu:      qemu-system-x86_64 -m 1G -nographic -bios OVMF.fd -drive file=DISK,format=raw
#
# Needs sfdisk (util-linux), mtools, and a boot loader: LOADER is its file (systemd-boot of the package systemd-boot-efi).
# SIZE is the disk's size (4G; it takes no more space than what is in it), UUID that of the Btrfs, VLINDER the command.
set -eu
disk=$1
tree=$2
vlinder=${VLINDER:-vlinder}
loader=${LOADER:-/usr/lib/systemd/boot/efi/systemd-bootx64.efi}
uuid=${UUID:-$(cat /proc/sys/kernel/random/uuid)}

if [ -e "$disk" ]; then
    echo "$disk is there already: remove it, or name another" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# A disk without a file system yet: 256 MiB for the kernel, the rest for Btrfs. What has to be unlike any other comes from
# the UUID.
truncate -s "${SIZE:-4G}" "$disk"
sfdisk -q "$disk" <<END
label: gpt
label-id: $(echo "$uuid" | tr 0-9a-f a-f0-9)
size=256M, type=uefi, name=esp, uuid=$(echo "$uuid" | tr 0-9a-f 1-9a-f0)
type=linux, name=root, uuid=$uuid
END

"$vlinder" mkfs -q -U "$uuid" -L root --compress zstd --rootdir "$tree" --subvol home --subvol var "$disk@2"

# What belongs to this disk and not to the tree.
cat > "$work/fstab" <<END
UUID=$uuid / btrfs compress=zstd 0 0
END
"$vlinder" cp "$work/fstab" "$disk@2:/etc/fstab"

# The kernel is where the tree has it; the loader reads the EFI system partition alone.
"$vlinder" cp "$disk@2:/boot/vmlinuz-*" "$work/linux"
"$vlinder" cp "$disk@2:/boot/initrd.img-*" "$work/initrd"
cat > "$work/loader.conf" <<END
timeout 0
END
cat > "$work/system.conf" <<END
title Linux
linux /linux
initrd /initrd
options root=UUID=$uuid rw console=ttyS0
END
esp="$disk@@1M"
mformat -i "$esp" -T $((256 * 2048)) -h 255 -s 63 -F -N "$(echo "$uuid" | cut -c1-8)" ::
mmd -i "$esp" ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries
mcopy -i "$esp" "$loader" ::/EFI/BOOT/BOOTX64.EFI
mcopy -i "$esp" "$work/linux" "$work/initrd" ::/
mcopy -i "$esp" "$work/loader.conf" ::/loader/loader.conf
mcopy -i "$esp" "$work/system.conf" ::/loader/entries/system.conf
