"""Random changes by one process, every one of which it can tell the outcome of."""

import os

from .listings import digest
from .records import Opened
from .workloads import Filler


class OneProcess:
    """Random changes by one process until many are refused; a snapshot is renewed now and then."""

    SIZES = (0, 100, 1500, 3000, 20000, 70000)
    OPERATIONS_PER_SNAPSHOT = 3000

    def __init__(self, run, mount):
        self.random, self.mount, self.manifest = run.random, mount, run.manifest
        self.filler = Filler(run, mount)
        self.files, self.count, self.snapshots, self.deletions_refused = [], 0, 0, 0
        self.refused_snapshots = {}
        self.weights = {self.create: 35, self.set_attribute: 20, self.write: 15, self.truncate: 10,
                        self.link: 10, self.unlink: 3, self.change_owner: 2, self.rename: 3,
                        self.sync_file: 2}
        os.makedirs(f"{mount.point}/w", exist_ok=True)

    def name(self, kind):
        return f"{self.mount.point}/w/{kind}{self.count}"

    def pick(self):
        return self.random.choice(self.files)

    def told(self, path):
        """The name under which the manifest has a file."""
        return os.path.relpath(path, self.mount.point)

    def record(self, path):
        return self.manifest.records[self.told(path)]

    def begin_write(self, path):
        """The record of a file whose bytes are about to change, if they were known."""
        record = self.record(path)
        was_known, record.is_known = record.is_known, False
        record.begin_change()
        return record if was_known else None

    def create(self):
        path, content = self.name("f"), self.random.randbytes(self.random.choice(self.SIZES))
        self.filler.store(self.told(path), content, is_kept=True)
        if self.told(path) in self.manifest.records:
            self.files.append(path)
            record = self.record(path)
            record.attributes, record.owner = {}, (os.geteuid(), os.getegid())

    def set_attribute(self):
        path, name = self.pick(), f"user.x{self.random.randrange(6)}"
        value = self.random.randbytes(self.random.randrange(1, 1500))
        record = self.record(path)
        record.begin_change()
        os.setxattr(path, name, value)
        record.attributes[name] = digest(value)

    def write(self):
        path, offset = self.pick(), self.random.randrange(200_000)
        content = self.random.randbytes(self.random.randrange(1, 9000))
        record = self.begin_write(path)
        with Opened(path, os.O_RDWR) as file:
            os.lseek(file, offset, os.SEEK_SET)
            accepted = self.filler.write(file, content)
        if record:
            record.write(offset, content[:accepted])

    def truncate(self):
        path, size = self.pick(), self.random.randrange(300_000)
        record = self.begin_write(path)
        os.truncate(path, size)
        if record:
            record.truncate(size)

    def link(self):
        path, old = self.name("l"), self.pick()
        os.link(old, path)
        self.files.append(path)
        self.manifest.link(self.told(old), self.told(path))

    def unlink(self):
        index = self.random.randrange(len(self.files))
        os.unlink(self.files[index])
        self.manifest.remove(self.told(self.files.pop(index)))

    def change_owner(self):
        path, owner = self.pick(), (self.random.randrange(9), self.random.randrange(9))
        record = self.record(path)
        record.begin_change()
        os.chown(path, *owner)
        record.owner = owner
        os.utime(self.pick())

    def rename(self):
        index, path = self.random.randrange(len(self.files)), self.name("r")
        os.rename(self.files[index], path)
        self.manifest.rename(self.told(self.files[index]), self.told(path))
        self.files[index] = path

    def sync_file(self):
        path = self.pick()
        record = self.record(path)
        was_known, record.is_known = record.is_known, False
        with Opened(path, os.O_RDWR) as file:
            os.fsync(file)
        record.is_known = was_known

    def renew_snapshot(self):
        taken = self.mount.snapshot(f"s{self.snapshots + 1}")
        if taken.failed():
            self.refused_snapshots[taken.text[-100:]] = self.refused_snapshots.get(taken.text[-100:], 0) + 1
            return
        self.snapshots += 1
        self.manifest.snapshot(f"s{self.snapshots}")
        if self.snapshots == 1:
            return
        older = f"s{self.snapshots - 1}"
        if self.mount.delete_subvolume(older).failed():
            self.deletions_refused += 1
        else:
            self.manifest.remove_snapshot(older)

    def run(self, refusals):
        operations, weights = list(self.weights), list(self.weights.values())
        while self.filler.refused < refusals:
            self.count += 1
            operation = self.random.choices(operations, weights)[0] if self.files else self.create
            try:
                operation()
            except OSError as error:
                self.filler.refuse(error)
            if self.count % self.OPERATIONS_PER_SNAPSHOT == 0:
                self.renew_snapshot()
        return {"operations": self.count, "refused": self.filler.refused,
                "files": len(self.files), "snapshots": self.snapshots,
                "snapshots_refused": self.refused_snapshots,
                "snapshot_deletions_refused": self.deletions_refused}


def one_process(run, mount):
    """Random changes until many are refused, with a snapshot that is renewed."""
    return OneProcess(run, mount).run(run.arguments.refusals)
