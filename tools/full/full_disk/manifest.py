"""What a full state must hold: what the workloads were told.

A change counts as *told* when a workload made it without an error and a later sync succeeded. Whatever was
told must be there on every system that mounts a copy of that state.
"""

import os

from .listings import shortened
from .records import Record


class Manifest:
    """Paths below the mount point, with what each file must hold, and paths that must not be there."""

    def __init__(self):
        self.records, self.removed, self.snapshots = {}, set(), set()

    def store(self, path, record):
        """A file was made, or written anew as a whole."""
        self.records[path] = record
        self.removed.discard(path)

    def link(self, old, new):
        if old in self.records:
            self.store(new, self.records[old])

    def rename(self, old, new):
        if old in self.records:
            self.store(new, self.records[old])
        self.remove(old)

    def remove(self, path):
        self.records.pop(path, None)
        self.removed.add(path)

    def remove_snapshot(self, name):
        self.snapshots.discard(name)
        for path in [path for path in self.records if path.startswith(f"{name}/")]:
            del self.records[path]
        self.removed = {path for path in self.removed if not path.startswith(f"{name}/")}
        self.removed.add(name)

    def snapshot(self, name):
        """A snapshot of the whole was taken without an error: it holds the same files, and all are durable.

        A file whose sync failed before may lack bytes, and stays doubtful."""
        self.settle(True)
        copied = {f"{name}/{path}": record.copied() for path, record in self.records.items()
                  if not self.is_in_snapshot(path)}
        gone = {f"{name}/{path}" for path in self.removed if not self.is_in_snapshot(path)}
        self.records.update(copied)
        self.removed |= gone
        self.snapshots.add(name)

    def is_in_snapshot(self, path):
        return path.split("/", 1)[0] in self.snapshots

    def settle(self, is_durable):
        """A sync ended: what was written before is durable, or in doubt if the sync failed."""
        state = Record.DURABLE if is_durable else Record.DOUBTFUL
        for record in self.records.values():
            if record.state == Record.PENDING:
                record.state = state

    def compare(self, point):
        """Compares a mount with what was told. Gives sentences and figures."""
        figures = {"told": 0, "unknown": 0, "doubtful": 0, "doubtful_differ": 0, "differ": 0, "removed": 0}
        differing = []
        for path, record in self.records.items():
            if record.state == Record.PENDING:
                continue
            is_told = record.state == Record.DURABLE
            figures["doubtful" if not is_told else "told" if record.is_known else "unknown"] += 1
            difference = record.difference(os.path.join(point, path))
            if difference:
                figures["differ" if is_told else "doubtful_differ"] += 1
                if is_told:
                    differing.append(f"{path} {difference}")
        figures["removed"] = len(self.removed)
        there = [path for path in sorted(self.removed) if os.path.lexists(os.path.join(point, path))]
        return [*shortened("files that were told to be stored differ", differing),
                *shortened("removed names are there", there)], figures
