"""Workloads of one process that fill a file system. Each gets the run and its mount, and gives figures.

What a workload was told to be stored stands in the run's manifest.
"""

import errno
import hashlib
import mmap
import os

from .contents import DIGEST_BYTES
from .systems import call

SECTOR_BYTES = 4096
# The distance of the scattered extents in their file: each is an extent of its own.
STRIDE_BYTES = 2 * SECTOR_BYTES
# Errors that no lack of space explains.
BROKEN = (errno.EROFS, errno.EIO, errno.ENOTCONN, errno.ECONNABORTED)
MAX_FILES = 1_000_000


class Filler:
    """Writes small files and counts what becomes of them."""

    def __init__(self, run, mount):
        self.run, self.mount = run, mount
        self.stored = self.refused = 0
        self.errors = {}

    def fail(self, error):
        """Counts an error; one that is not a lack of space is named."""
        if error.errno == errno.ENOSPC:
            self.refused += 1
        else:
            name = errno.errorcode.get(error.errno, str(error.errno))
            self.errors[name] = self.errors.get(name, 0) + 1
            if error.errno in BROKEN:
                raise error

    def store(self, path, content):
        """Creates a file and writes it at once. Gives whether it is there."""
        try:
            file = os.open(os.path.join(self.mount.point, path), os.O_WRONLY | os.O_CREAT)
            try:
                written = os.write(file, content)
            finally:
                os.close(file)
        except OSError as error:
            self.fail(error)
            return False
        self.stored += 1
        if written == len(content):
            self.run.manifest.store(path, content)
        return True

    def fill(self, prefix, content, refusals):
        """Equal files until so many were refused."""
        end = self.refused + refusals
        while self.refused < end and self.stored < MAX_FILES:
            self.store(f"{prefix}{self.stored}", content)

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
                refused += 1
                if error.errno in BROKEN:
                    raise
        if refused:
            self.run.violations.append(f"workload: {refused} of {count} removals refused without a snapshot")
        return refused

    def figures(self, **more):
        return {"stored": self.stored, "refused": self.refused, "errors": self.errors, **more}


def write_extents(run, mount, count):
    """A file of extents of one sector each, in random order on the disk. Gives how many were written."""
    if not count:
        return 0
    file = os.open(f"{mount.point}/db", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    written = 0
    sector_bytes = run.random.randbytes(SECTOR_BYTES)
    order = list(range(count))
    try:
        os.ftruncate(file, count * STRIDE_BYTES)
        run.random.shuffle(order)
        sector = mmap.mmap(-1, SECTOR_BYTES)
        sector.write(sector_bytes)
        for index in order:
            os.pwritev(file, [sector], index * STRIDE_BYTES)
            written += 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(file)
    run.manifest.store_digest("db", count * STRIDE_BYTES, digest_of_extents(sector_bytes, order, written))
    return written


def digest_of_extents(sector_bytes, order, written):
    """The digest of a file in which the first of these extents are written and the rest is holes."""
    hasher, holes = hashlib.blake2b(digest_size=DIGEST_BYTES), bytes(SECTOR_BYTES)
    done = set(order[:written])
    for index in range(len(order)):
        hasher.update(sector_bytes if index in done else holes)
        hasher.update(holes)
    return hasher.digest()


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
    filler.fill("f", run.random.randbytes(run.arguments.bytes), 1)
    return filler.figures()


def remove_then_snapshot(run, mount):
    """Scattered extents, small files until twenty are refused, twice; some are removed; a snapshot."""
    arguments, filler = run.arguments, Filler(run, mount)
    extents = write_extents(run, mount, arguments.extents)
    content = run.random.randbytes(arguments.bytes)
    for _ in range(2):
        filler.fill("f", content, 20)
        sync(run, mount)
    refused = filler.remove("f", arguments.remove)
    taken = take_snapshot(run, mount, "snapshot")
    return filler.figures(extents=extents, removals_refused=refused, snapshot=taken.short())


def snapshot_then_fill(run, mount):
    """Small files, one snapshot, larger ones to the first refusal."""
    filler = Filler(run, mount)
    extents = write_extents(run, mount, run.arguments.extents)
    content = run.random.randbytes(1800)
    for number in range(run.arguments.half):
        filler.store(f"f{number}", content[:600])
    sync(run, mount)
    taken = take_snapshot(run, mount, "snapshot")
    filler.fill("f", content, 1)
    return filler.figures(extents=extents, snapshot=taken.short())


def overwrite(run, mount, extents, count):
    """Overwrites some scattered sectors and makes them durable. Gives how many were refused."""
    refused = 0
    run.manifest.touch("db")
    file = os.open(f"{mount.point}/db", os.O_RDWR)
    try:
        for _ in range(count):
            try:
                os.pwrite(file, bytes(SECTOR_BYTES), run.random.randrange(max(extents, 1)) * STRIDE_BYTES)
            except OSError as error:
                refused += 1
                if error.errno in BROKEN:
                    raise
        try:
            os.fsync(file)
        except OSError as error:
            refused += 1
            if error.errno in (errno.EROFS, errno.ENOTCONN):
                raise
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
        filler.fill("s/f", bytes(600), 50)
        sync(run, mount)
    removals_refused = filler.remove("s/f", arguments.leave)
    sync(run, mount)
    taken = take_snapshot(run, mount, "snapshot")
    refused = 0
    for _ in range(20):
        refused += overwrite(run, mount, extents, arguments.touch)
        sync(run, mount)
    return filler.figures(extents=extents, snapshot=taken.short(), overwrites_refused=refused,
                          removals_refused=removals_refused)


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

    def pick_to_change(self):
        path = self.pick()
        self.manifest.touch(self.told(path))
        return path

    def create(self):
        path, content = self.name("f"), self.random.randbytes(self.random.choice(self.SIZES))
        with open(path, "wb", buffering=0) as file:
            written = file.write(content)
        self.files.append(path)
        if written == len(content):
            self.manifest.store(self.told(path), content)

    def set_attribute(self):
        value = self.random.randbytes(self.random.randrange(1, 1500))
        os.setxattr(self.pick(), f"user.x{self.random.randrange(6)}", value)

    def write(self):
        with open(self.pick_to_change(), "r+b", buffering=0) as file:
            file.seek(self.random.randrange(200_000))
            file.write(self.random.randbytes(self.random.randrange(1, 9000)))

    def truncate(self):
        os.truncate(self.pick_to_change(), self.random.randrange(300_000))

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
        os.chown(self.pick(), self.random.randrange(9), self.random.randrange(9))
        os.utime(self.pick())

    def rename(self):
        index, path = self.random.randrange(len(self.files)), self.name("r")
        os.rename(self.files[index], path)
        self.manifest.rename(self.told(self.files[index]), self.told(path))
        self.files[index] = path

    def sync_file(self):
        file = os.open(self.pick(), os.O_RDWR)
        try:
            os.fsync(file)
        finally:
            os.close(file)

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
                self.filler.fail(error)
            if self.count % self.OPERATIONS_PER_SNAPSHOT == 0:
                self.renew_snapshot()
        return {"operations": self.count, "refused": self.filler.refused, "errors": self.filler.errors,
                "files": len(self.files), "snapshots": self.snapshots,
                "snapshots_refused": self.refused_snapshots,
                "snapshot_deletions_refused": self.deletions_refused}


def one_process(run, mount):
    """Random changes until many are refused, with a snapshot that is renewed."""
    return OneProcess(run, mount).run(run.arguments.refusals)


def unpack(source, image):
    """Copies an image, or unpacks it with zstd. Raises RuntimeError."""
    if source.endswith(".zst"):
        done = call("zstd", "-q", "-d", "-f", "--sparse", "-o", image, source)
    else:
        done = call("cp", "--sparse=always", source, image)
    if done.failed():
        raise RuntimeError(f"{source}: {done.text}")
