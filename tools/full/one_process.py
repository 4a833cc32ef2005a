#!/usr/bin/env python3
"""One process changes files at random until so many changes were refused; one snapshot is renewed meanwhile."""

import os
import sys

from full_disk.filling import Filling
from full_disk.program import main, parser

SIZES = (0, 100, 1500, 3000, 20000, 70000)
# Operations between two snapshots.
SNAPSHOT_EVERY = 3000
WEIGHTS = {"create": 35, "set_attribute": 20, "overwrite": 15, "truncate": 10, "link": 10, "unlink": 3, "touch": 2,
           "rename": 3, "fsync": 2}


class Worker:
    """The files of one process, and what it does to them."""

    def __init__(self, top, numbers):
        self.top, self.numbers, self.files, self.operations = top, numbers, [], 0
        os.makedirs(top)

    def step(self):
        """One operation, chosen at random. Raises OSError."""
        self.operations += 1
        name = self.numbers.choices(list(WEIGHTS), list(WEIGHTS.values()))[0] if self.files else "create"
        getattr(self, name)()

    def new_path(self, kind):
        return f"{self.top}/{kind}{self.operations}"

    def pick(self):
        return self.numbers.choice(self.files)

    def create(self):
        path = self.new_path("f")
        with open(path, "wb", buffering=0) as file:
            self.files.append(path)
            file.write(self.numbers.randbytes(self.numbers.choice(SIZES)))

    def set_attribute(self):
        value = self.numbers.randbytes(self.numbers.randrange(1, 1500))
        os.setxattr(self.pick(), f"user.x{self.numbers.randrange(6)}", value)

    def overwrite(self):
        with open(self.pick(), "r+b", buffering=0) as file:
            file.seek(self.numbers.randrange(200_000))
            file.write(self.numbers.randbytes(self.numbers.randrange(1, 9000)))

    def truncate(self):
        os.truncate(self.pick(), self.numbers.randrange(300_000))

    def link(self):
        path = self.new_path("l")
        os.link(self.pick(), path)
        self.files.append(path)

    def unlink(self):
        position = self.numbers.randrange(len(self.files))
        os.unlink(self.files[position])
        self.files.pop(position)

    def touch(self):
        os.chown(self.pick(), self.numbers.randrange(9), self.numbers.randrange(9))
        os.utime(self.pick())

    def rename(self):
        position, path = self.numbers.randrange(len(self.files)), self.new_path("r")
        os.rename(self.files[position], path)
        self.files[position] = path

    def fsync(self):
        file = os.open(self.pick(), os.O_RDWR)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def renew_snapshot(mount, filling, snapshots):
    """Takes a snapshot and deletes the one before. A lack of space may refuse the snapshot, never the deletion."""
    name = f"snapshot{filling.details['snapshots'] + 1}"
    if mount.snapshot(name).failed():
        filling.details["snapshots_refused"] += 1
        return []
    filling.details["snapshots"] += 1
    snapshots.append(name)
    findings = []
    while len(snapshots) > 1:
        deleted = mount.delete_subvolume(snapshots[0])
        if deleted.failed():
            findings.append(f"the deletion of an older snapshot was refused: {deleted.short()}")
            break
        snapshots.pop(0)
    return findings


def fill(run, mount):
    arguments, filling, snapshots = run.arguments, Filling(), []
    filling.details.update(snapshots=0, snapshots_refused=0)
    worker = Worker(f"{mount.point}/work", run.random)
    while filling.refused < arguments.refusals and worker.operations < arguments.operations:
        filling.attempt(worker.step)
        if sum(filling.unexpected.values()) > 20:
            break
        if worker.operations % SNAPSHOT_EVERY == 0:
            run.violations += renew_snapshot(mount, filling, snapshots)
    filling.stored = len(worker.files)
    filling.details["operations"] = worker.operations
    return filling


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--refusals", type=int, default=3000, help="after which the process ends (default: %(default)s)")
    arguments.add_argument("--operations", type=int, default=200_000, help="the most operations (default: %(default)s)")
    sys.exit(main("one_process", arguments.parse_args(), fill))
