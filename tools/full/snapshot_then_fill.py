#!/usr/bin/env python3
"""A file of scattered extents and small files to half of the disk, one snapshot, then files of 1,800 bytes until the first is
refused. Everything below the snapshot is shared, so each removal has to copy what it changes."""

import sys

from full_disk.filling import Filling, write_scattered
from full_disk.program import main, parser

HALF_BYTES = 600
REST_BYTES = 1800


def fill(run, mount):
    arguments, filling = run.arguments, Filling()
    if arguments.extents:
        filling.details["extents"] = write_scattered(filling, f"{mount.point}/db", arguments.extents, run.random)
    content = run.random.randbytes(HALF_BYTES)
    for number in range(arguments.half):
        filling.store(mount.point, f"f{number}", content)
    filling.details["sync"] = mount.sync().short()
    filling.details["snapshot"] = mount.snapshot("snapshot").short()
    filling.store_until_refused(mount.point, "f", run.random.randbytes(REST_BYTES), 1)
    return filling


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--half", type=int, default=8000, help="files before the snapshot (default: %(default)s)")
    arguments.add_argument("--extents", type=int, default=0, help="of the scattered file (default: %(default)s)")
    sys.exit(main("snapshot_then_fill", arguments.parse_args(), fill))
