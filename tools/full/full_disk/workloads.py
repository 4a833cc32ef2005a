"""Workloads of one process that fill a file system. Each gets the run and its mount, and gives figures.

What a workload was told to be stored stands in the run's manifest.
"""

import errno
import mmap
import os

from .records import Opened, Whole
from .scattered import SECTOR_BYTES, STRIDE_BYTES, Scattered, sector
from .systems import call

MAX_FILES = 1_000_000


def require_no_space(error):
    """Raises an error that a lack of space does not explain: it ends the workload and is a violation."""
    if error.errno != errno.ENOSPC:
        raise error


class Filler:
    """Writes small files and counts what becomes of them."""

    def __init__(self, run, mount):
        self.run, self.mount = run, mount
        self.stored = self.refused = 0

    def refuse(self, error):
        """Counts a refusal. Raises any other error."""
        require_no_space(error)
        self.refused += 1

    def write(self, file, content):
        """One write. Gives how many bytes were accepted: none of a write that is refused."""
        try:
            return os.write(file, content)
        except OSError as error:
            self.refuse(error)
            return 0

    def store(self, path, content, is_kept=False):
        """Creates a file and writes it at once. Gives whether all of it was accepted."""
        record = Whole(is_kept)
        try:
            with Opened(os.path.join(self.mount.point, path), os.O_WRONLY | os.O_CREAT) as file:
                # Known again when the file could be closed.
                self.run.manifest.store(path, record)
                accepted = self.write(file, content)
        except OSError as error:
            self.refuse(error)
            return False
        record.become(content[:accepted])
        is_stored = accepted == len(content)
        self.stored += is_stored
        return is_stored

    def fill(self, prefix, content_bytes, refusals):
        """Files of one size until so many were refused."""
        end = self.refused + refusals
        while self.refused < end and self.stored < MAX_FILES:
            self.store(f"{prefix}{self.stored}", self.run.random.randbytes(content_bytes))

    def remove(self, prefix, count):
        """Removes the first files. Gives how many were refused."""
        refused = 0
        for number in range(count):
            path = f"{prefix}{number}"
            try:
                os.unlink(os.path.join(self.mount.point, path))
                self.run.manifest.remove(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                require_no_space(error)
                refused += 1
        if refused:
            self.run.violations.append(f"workload: {refused} of {count} removals refused without a snapshot")
        return refused

    def figures(self, **more):
        return {"stored": self.stored, "refused": self.refused, **more}


def write_extents(run, mount, count):
    """A file of extents of one sector each, in random order on the disk. Gives how many were written."""
    if not count:
        return 0
    record = Scattered(count)
    order, written = list(range(count)), 0
    run.random.shuffle(order)
    memory = mmap.mmap(-1, SECTOR_BYTES)
    file = os.open(f"{mount.point}/db", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    try:
        os.ftruncate(file, count * STRIDE_BYTES)
        run.manifest.store("db", record)
        for index in order:
            memory[:] = sector(index, 0)
            if os.pwritev(file, [memory], index * STRIDE_BYTES) != SECTOR_BYTES:
                raise RuntimeError("a direct write of one sector was cut short")
            record.write(index, 0)
            written += 1
    except OSError as error:
        require_no_space(error)
    finally:
        os.close(file)
        record.sync(True)
    return written


def sync(run, mount):
    """Syncs. From then on what was written before is durable, or in doubt."""
    done = mount.sync()
    run.manifest.settle(not done.failed())
    return done


def take_snapshot(run, mount, name):
    """Takes a snapshot. Gives the result."""
    taken = mount.snapshot(name)
    if taken.failed():
        run.is_snapshot_refused = True
    else:
        run.manifest.snapshot(name)
    return taken


def fill(run, mount):
    """Files of one size to the first refusal; no snapshot."""
    filler = Filler(run, mount)
    filler.fill("f", run.arguments.bytes, 1)
    return filler.figures()


def remove_then_snapshot(run, mount):
    """Scattered extents, small files until twenty are refused, twice; some are removed; a snapshot."""
    arguments, filler = run.arguments, Filler(run, mount)
    extents = write_extents(run, mount, arguments.extents)
    for _ in range(2):
        filler.fill("f", arguments.bytes, 20)
        sync(run, mount)
    refused = filler.remove("f", arguments.remove)
    taken = take_snapshot(run, mount, "snapshot")
    return filler.figures(extents=extents, removals_refused=refused, snapshot=taken.short())


def snapshot_then_fill(run, mount):
    """Small files, one snapshot, larger ones to the first refusal."""
    filler = Filler(run, mount)
    extents = write_extents(run, mount, run.arguments.extents)
    for number in range(run.arguments.half):
        filler.store(f"f{number}", run.random.randbytes(600))
    sync(run, mount)
    taken = take_snapshot(run, mount, "snapshot")
    filler.fill("f", 1800, 1)
    return filler.figures(extents=extents, snapshot=taken.short())


def overwrite(run, mount, count):
    """Overwrites some scattered sectors and makes them durable. Gives how many were refused."""
    record, refused = run.manifest.records.get("db"), 0
    if not record:
        return 0
    file = os.open(f"{mount.point}/db", os.O_RDWR)
    try:
        for _ in range(count):
            index = run.random.randrange(record.count)
            version = record.next_version(index)
            try:
                if os.pwrite(file, sector(index, version), index * STRIDE_BYTES) != SECTOR_BYTES:
                    raise RuntimeError("a write of one sector was cut short")
                record.write(index, version)
            except OSError as error:
                require_no_space(error)
                refused += 1
        try:
            os.fsync(file)
            record.sync(True)
        except OSError as error:
            require_no_space(error)
            record.sync(False)
            refused += 1
    finally:
        os.close(file)
    return refused


def scatter(run, mount):
    """Scattered extents, metadata filled up with small files, a snapshot, then rounds of a few overwrites.

    Each overwrite copies a leaf of the file, and that adds a reference to every extent in it, far apart in
    the extent tree."""
    arguments, filler = run.arguments, Filler(run, mount)
    extents = write_extents(run, mount, arguments.extents)
    sync(run, mount)
    os.mkdir(f"{mount.point}/s")
    for _ in range(2):
        filler.fill("s/f", 600, 50)
        sync(run, mount)
    removals_refused = filler.remove("s/f", arguments.leave)
    sync(run, mount)
    taken = take_snapshot(run, mount, "snapshot")
    refused = 0
    for _ in range(20):
        refused += overwrite(run, mount, arguments.touch)
        sync(run, mount)
    return filler.figures(extents=extents, snapshot=taken.short(), overwrites_refused=refused,
                          removals_refused=removals_refused)


def unpack(source, image):
    """Copies an image, or unpacks it with zstd. Raises RuntimeError."""
    if source.endswith(".zst"):
        done = call("zstd", "-q", "-d", "-f", "--sparse", "-o", image, source)
    else:
        done = call("cp", "--sparse=always", source, image)
    if done.failed():
        raise RuntimeError(f"{source}: {done.text}")
