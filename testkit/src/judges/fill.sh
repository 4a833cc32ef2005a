# What an image holds before it is changed: as many kinds of items as the kernel makes, each few times. Run by sh in the mounted root.
set -eu
export LC_ALL=C
mkdir -p d/e other; seq 1 40 > small; seq 1 9000 > text; ln small d/hard; ln -s ../small d/link
mknod d/device c 1 3; mkfifo d/pipe; chmod 4755 small; chown 1000:1001 d/e
dd if=/dev/urandom of=d/file bs=4096 count=40 status=none
cp --reflink=always d/file d/clone; fallocate -l 256k reserved; fallocate -n -l 128k small
dd if=/dev/urandom of=reserved bs=4096 count=3 seek=7 conv=notrunc status=none
truncate -s 1M sparse; dd if=/dev/urandom of=sparse bs=4096 count=2 seek=50 conv=notrunc status=none
touch plain; chattr +C plain; dd if=/dev/urandom of=plain bs=4096 count=6 conv=notrunc status=none
for method in zlib lzo zstd; do
    mkdir $method; btrfs property set $method compression $method
    seq 1 30000 > $method/file; seq 1 300 > $method/inline
done
setfattr -n user.name -v value d/file; setfattr -n user.name -v other small; setfacl -m u:1234:rwx d/e
i=0; while [ $i -lt 30 ]; do ln text "other/$(printf 'n%.0s' $(seq 200))$i" 2> /dev/null || break; i=$((i+1)); done
btrfs subvolume create s > /dev/null; cp --reflink=always d/file s/inside; seq 1 500 > s/own; mkdir s/in; touch s/in/side
btrfs subvolume create s/nested > /dev/null; echo deep > s/nested/file; sync -f .
btrfs subvolume snapshot s t > /dev/null; btrfs subvolume snapshot -r s t/shot > /dev/null
dd if=/dev/urandom of=t/inside bs=4096 count=3 seek=9 conv=notrunc status=none; touch s/later; sync -f .
i=0; while [ $i -lt 24 ]; do cp --reflink=always d/file s/clone-$i; i=$((i+1)); done; sync -f .
btrfs subvolume snapshot s u > /dev/null; touch u/clone-3 s/clone-4; sync -f .
