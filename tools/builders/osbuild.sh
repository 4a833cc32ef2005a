#!/usr/bin/env bash
# tools/builders/osbuild.sh VLINDER DIRECTORY OSBUILD: osbuild makes a disk with vlinder as mkfs.btrfs.
#
# OSBUILD is a checkout of osbuild. Its stages make a GPT disk, have vlinder make a Btrfs on a loop device over its first
# partition, mount that by the kernel and copy a tree into it. vlinder takes the place of /usr/sbin/mkfs.btrfs in a mount
# namespace of its own. (The stage that makes subvolumes calls `btrfs subvolume create -p`, which btrfs-progs before 6.5.3
# does not have, and is left out.) Both checkers judge the file system. Needs root, bubblewrap, python3-jsonschema, fdisk,
# tar and btrfs-progs, whose mkfs.btrfs is covered. Ends with 0 and a line of figures, or with what failed.
set -euo pipefail

fail() { printf 'osbuild.sh: %s\n' "$*" >&2; exit 1; }
[ $# -eq 3 ] || fail "give the command vlinder, a directory and a checkout of osbuild"
[ "$(id -u)" = 0 ] || fail "needs root, for loop devices and mounts"
vlinder=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
osbuild=$(realpath "$3")
[ -e "$osbuild/stages/org.osbuild.mkfs.btrfs" ] || fail "$osbuild has no stages of osbuild"
[ -d /etc/containers ] || fail "osbuild wants /etc/containers: make that directory"
rm -rf "${work:?}"/{store,out}
first=2048 sectors=614400
cat > "$work/manifest.json" <<FILE
{"version": "2", "pipelines": [
  {"name": "tree", "runner": "org.osbuild.linux", "stages": [
    {"type": "org.osbuild.mkdir", "options": {"paths": [{"path": "/etc"}, {"path": "/home", "mode": 448}]}}]},
  {"name": "image", "runner": "org.osbuild.linux", "stages": [
    {"type": "org.osbuild.truncate", "options": {"filename": "disk.img", "size": "536870912"}},
    {"type": "org.osbuild.sfdisk",
     "options": {"label": "gpt", "uuid": "D209C89E-EA5E-4FBD-B161-B461CCE297E0", "partitions": [
       {"start": $first, "size": $sectors, "type": "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
        "uuid": "FAC7F1FB-3E8D-4137-A512-961DE09A5549"}]},
     "devices": {"device": {"type": "org.osbuild.loopback", "options": {"filename": "disk.img"}}}},
    {"type": "org.osbuild.mkfs.btrfs",
     "options": {"uuid": "6e4ff95f-f662-45ee-a82a-bdf44a2d0b75", "label": "root", "metadata": "dup"},
     "devices": {"device": {"type": "org.osbuild.loopback",
       "options": {"filename": "disk.img", "start": $first, "size": $sectors}}}},
    {"type": "org.osbuild.copy",
     "inputs": {"tree": {"type": "org.osbuild.tree", "origin": "org.osbuild.pipeline", "references": ["name:tree"]}},
     "options": {"paths": [{"from": "input://tree/", "to": "mount://root/"}]},
     "devices": {"device": {"type": "org.osbuild.loopback",
       "options": {"filename": "disk.img", "start": $first, "size": $sectors}}},
     "mounts": [{"name": "root", "type": "org.osbuild.btrfs", "source": "device", "target": "/"}]}]}]}
FILE
unshare --mount --propagation private bash -euc '
    mount --bind "$0" /usr/sbin/mkfs.btrfs
    cd "$2"
    PATH=/usr/bin:/usr/sbin:/bin:/sbin PYTHONPATH="$1" exec /usr/bin/python3 -m osbuild --libdir "$1" --store store \
        --output-directory out --export image manifest.json' "$vlinder" "$osbuild" "$work" > "$work/log" 2>&1 ||
    fail "osbuild failed: see $work/log"
disk=$work/out/image/disk.img
"$vlinder" check "$disk" > "$work/check" 2>&1 || fail "vlinder check: see $work/check"
dd if="$disk" of="$work/root" bs=512 skip=$first count=$sectors status=none
btrfs check "$work/root" > "$work/check.progs" 2>&1 || fail "btrfs check: see $work/check.progs"
"$vlinder" inspect dump-super "$work/root" > "$work/super"
grep -q 'label.*root' "$work/super" && grep -q 6e4ff95f-f662-45ee-a82a-bdf44a2d0b75 "$work/super" ||
    fail "label or UUID are others: see $work/super"
told=$("$vlinder" ls -l "$disk")
grep -q '^drwx------ .* home$' <<< "$told" || fail "the copied tree is another: $told"
printf 'osbuild made a disk of %s bytes with one Btrfs: both checkers agree\n' "$(stat -c %s "$disk")"
