#!/usr/bin/env python3
"""A file of scattered extents, small files until none fits any more, a few of them removed, one snapshot.

The snapshot's commit copies leaves that hold many extents, and has little room for the references that this adds."""

import os
import sys

from full_disk.filling import Filling, write_scattered
from full_disk.program import main, parser

REFUSALS = 20


def fill(run, mount):
    arguments, filling = run.arguments, Filling()
    if arguments.extents:
        filling.details["extents"] = write_scattered(filling, f"{mount.point}/db", arguments.extents, run.random)
    content = run.random.randbytes(arguments.bytes)
    for _ in range(2):
        filling.store_until_refused(mount.point, "f", content, REFUSALS)
        filling.details["sync"] = mount.sync().short()
    names = list(filling.expected)[:arguments.remove]
    removed = 0
    for name in names:
        if filling.attempt(lambda: os.unlink(f"{mount.point}/{name}")):
            del filling.expected[name]
            removed += 1
    filling.details["removed_before"] = removed
    if removed < len(names):
        run.violations.append(f"{len(names) - removed} of {len(names)} files can't be removed, without a snapshot")
    filling.details["snapshot"] = mount.snapshot("snapshot").short()
    return filling


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--bytes", type=int, default=600, help="size of each file (default: %(default)s)")
    arguments.add_argument("--remove", type=int, default=500, help="files removed (default: %(default)s)")
    arguments.add_argument("--extents", type=int, default=20000, help="of the scattered file (default: %(default)s)")
    sys.exit(main("remove_then_snapshot", arguments.parse_args(), fill))
