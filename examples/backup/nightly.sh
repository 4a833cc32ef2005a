#!/bin/sh
# nightly.sh DIRECTORY STORE
#
# Keeps DIRECTORY as it is tonight: as a snapshot in the image STORE/backup.img, and as a stream in STORE/streams, which has
# the first night whole and of each later one what changed since the night before. No root is needed, only rsync and what
# an ordinary user's FUSE mount takes (fusermount3). The same night is kept once.
#
# One file of any night:           vlinder cp STORE/backup.img:/2026-11-30/PATH .
# All nights in another image:     for stream in STORE/streams/*; do vlinder receive -f "$stream" OTHER.img:/; done
#
# SIZE is the image's size (16G; it takes no more space than what is in it), DAY the night's name, VLINDER the command.
set -eu
directory=$1
store=$2
vlinder=${VLINDER:-vlinder}
day=${DAY:-$(date +%F)}
image=$store/backup.img
mount=$store/mount
streams=$store/streams

mkdir -p "$mount" "$streams"
if [ ! -e "$image" ]; then
    "$vlinder" mkfs -q -b "${SIZE:-16G}" "$image"
    "$vlinder" subvolume create "$image:/current" >/dev/null
fi
"$vlinder" mount -o owners=me,compress=zstd "$image" "$mount"
trap '"$vlinder" umount "$mount"' EXIT

if [ ! -e "$mount/$day" ]; then
    # What did not change is not written again, so that the nights share it. Times are compared to the nanosecond: a file
    # may have changed twice within a second.
    rsync -a --delete --inplace --no-whole-file --modify-window=-1 "$directory/" "$mount/current/"
    "$vlinder" subvolume snapshot -r "$mount/current" "$mount/$day" >/dev/null
fi

if [ ! -e "$streams/$day" ]; then
    before=$(ls "$streams" | grep -v '\.part$' | tail -n 1)
    # A stream gets its name when it is whole.
    "$vlinder" send --quiet ${before:+-p "$mount/$before"} -f "$streams/$day.part" "$mount/$day"
    mv "$streams/$day.part" "$streams/$day"
fi
