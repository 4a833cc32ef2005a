#!/usr/bin/env python3
"""A file of scattered extents, metadata filled with small files, one snapshot, then a few changes far apart. Each change copies
a leaf of the file, and that adds a reference to every extent in it, far apart in the extent tree."""

import ctypes
import os
import sys

from full_disk.filling import SCATTER_BYTES, SECTOR_BYTES, Filling, write_scattered
from full_disk.program import main, parser

REFUSALS = 50
KEEP_SIZE, PUNCH_HOLE = 1, 2


def punch(file, offset):
    """Frees one sector of the file."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(file, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(SECTOR_BYTES)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def change(run, mount, filling, written):
    """Rounds of changes far apart, each made durable. A lack of space is allowed."""
    arguments = run.arguments
    content = run.random.randbytes(SECTOR_BYTES)
    changed = 0
    for _ in range(arguments.rounds):
        file = os.open(f"{mount.point}/db", os.O_RDWR)
        try:
            for _ in range(arguments.touch):
                offset = run.random.randrange(max(written, 1)) * SCATTER_BYTES
                work = (lambda: punch(file, offset)) if arguments.how == "punch" else \
                    (lambda: os.pwrite(file, content, offset))
                changed += filling.attempt(work)
            filling.attempt(lambda: os.fsync(file))
        finally:
            filling.attempt(lambda: os.close(file))
        result = mount.sync()
        if result.failed():
            filling.details["sync_of_a_round"] = result.short()
        if mount.complaints():
            break
    filling.details["changed"] = changed


def fill(run, mount):
    arguments, filling = run.arguments, Filling()
    written = write_scattered(filling, f"{mount.point}/db", arguments.extents, run.random)
    filling.details["extents"] = written
    mount.sync()
    content = bytes(arguments.bytes)
    for _ in range(2):
        filling.store_until_refused(mount.point, "f", content, REFUSALS)
        filling.details["sync"] = mount.sync().short()
    for name in list(filling.expected)[:arguments.leave]:
        if filling.attempt(lambda: os.unlink(f"{mount.point}/{name}")):
            del filling.expected[name]
    mount.sync()
    filling.details["snapshot"] = mount.snapshot("snapshot").short()
    change(run, mount, filling, written)
    return filling


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--extents", type=int, default=20000, help="of the scattered file (default: %(default)s)")
    arguments.add_argument("--bytes", type=int, default=600, help="size of each small file (default: %(default)s)")
    arguments.add_argument("--leave", type=int, default=0, help="small files removed before the snapshot")
    arguments.add_argument("--touch", type=int, default=30, help="changes of a round (default: %(default)s)")
    arguments.add_argument("--rounds", type=int, default=20, help="rounds of changes (default: %(default)s)")
    arguments.add_argument("--how", choices=("overwrite", "punch"), default="overwrite", help="what a change does")
    sys.exit(main("scatter", arguments.parse_args(), fill))
