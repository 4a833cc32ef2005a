"""Workloads of one process that fill a file system. Each gets the run and its mount, and gives figures."""

import errno
import mmap
import os

from .systems import call

SECTOR_BYTES = 4096
# The distance of the scattered extents in their file: each is an extent of its own.
STRIDE_BYTES = 2 * SECTOR_BYTES
# Errors that no lack of space explains.
BROKEN = (errno.EROFS, errno.EIO, errno.ENOTCONN, errno.ECONNABORTED)
MAX_FILES = 400_000


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
                os.write(file, content)
            finally:
                os.close(file)
        except OSError as error:
            self.fail(error)
            return False
        self.stored += 1
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
            try:
                os.unlink(os.path.join(self.mount.point, f"{prefix}{number}"))
            except FileNotFoundError:
                pass
            except OSError as error:
                refused += 1
                if error.errno in BROKEN:
                    raise
        return refused

    def figures(self, **more):
        return {"stored": self.stored, "refused": self.refused, "errors": self.errors, **more}


def write_extents(run, mount, count):
    """A file of extents of one sector each, in random order on the disk. Gives how many were written."""
    if not count:
        return 0
    file = os.open(f"{mount.point}/db", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    written = 0
    try:
        os.ftruncate(file, count * STRIDE_BYTES)
        order = list(range(count))
        run.random.shuffle(order)
        sector = mmap.mmap(-1, SECTOR_BYTES)
        sector.write(run.random.randbytes(SECTOR_BYTES))
        for index in order:
            os.pwritev(file, [sector], index * STRIDE_BYTES)
            written += 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(file)
    return written


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
        mount.sync()
    refused = filler.remove("f", arguments.remove)
    taken = mount.snapshot("snapshot")
    return filler.figures(extents=extents, removals_refused=refused, snapshot=taken.short())


def snapshot_then_fill(run, mount):
    """Small files, one snapshot, larger ones to the first refusal."""
    filler = Filler(run, mount)
    extents = write_extents(run, mount, run.arguments.extents)
    content = run.random.randbytes(1800)
    for number in range(run.arguments.half):
        filler.store(f"f{number}", content[:600])
    mount.sync()
    taken = mount.snapshot("snapshot")
    filler.fill("f", content, 1)
    return filler.figures(extents=extents, snapshot=taken.short())


def overwrite(run, mount, extents, count):
    """Overwrites some scattered sectors and makes them durable. Gives how many were refused."""
    refused = 0
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
    mount.sync()
    os.mkdir(f"{mount.point}/s")
    for _ in range(2):
        filler.fill("s/f", bytes(600), 50)
        mount.sync()
    removals_refused = filler.remove("s/f", arguments.leave)
    mount.sync()
    taken = mount.snapshot("snapshot")
    refused = 0
    for _ in range(20):
        refused += overwrite(run, mount, extents, arguments.touch)
        mount.sync()
    return filler.figures(extents=extents, snapshot=taken.short(), overwrites_refused=refused,
                          removals_refused=removals_refused)


class OneProcess:
    """Random changes by one process until many are refused; a snapshot is renewed now and then."""

    SIZES = (0, 100, 1500, 3000, 20000, 70000)
    OPERATIONS_PER_SNAPSHOT = 3000

    def __init__(self, run, mount):
        self.random, self.mount = run.random, mount
        self.filler = Filler(run, mount)
        self.files, self.count, self.snapshots, self.deletions_refused = [], 0, 0, 0
        self.weights = {self.create: 35, self.set_attribute: 20, self.write: 15, self.truncate: 10,
                        self.link: 10, self.unlink: 3, self.change_owner: 2, self.rename: 3,
                        self.sync_file: 2}
        os.makedirs(f"{mount.point}/w", exist_ok=True)

    def name(self, kind):
        return f"{self.mount.point}/w/{kind}{self.count}"

    def pick(self):
        return self.random.choice(self.files)

    def create(self):
        path = self.name("f")
        with open(path, "wb", buffering=0) as file:
            file.write(self.random.randbytes(self.random.choice(self.SIZES)))
        self.files.append(path)

    def set_attribute(self):
        value = self.random.randbytes(self.random.randrange(1, 1500))
        os.setxattr(self.pick(), f"user.x{self.random.randrange(6)}", value)

    def write(self):
        with open(self.pick(), "r+b", buffering=0) as file:
            file.seek(self.random.randrange(200_000))
            file.write(self.random.randbytes(self.random.randrange(1, 9000)))

    def truncate(self):
        os.truncate(self.pick(), self.random.randrange(300_000))

    def link(self):
        path = self.name("l")
        os.link(self.pick(), path)
        self.files.append(path)

    def unlink(self):
        index = self.random.randrange(len(self.files))
        os.unlink(self.files[index])
        self.files.pop(index)

    def change_owner(self):
        os.chown(self.pick(), self.random.randrange(9), self.random.randrange(9))
        os.utime(self.pick())

    def rename(self):
        index, path = self.random.randrange(len(self.files)), self.name("r")
        os.rename(self.files[index], path)
        self.files[index] = path

    def sync_file(self):
        file = os.open(self.pick(), os.O_RDWR)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def renew_snapshot(self):
        if self.mount.snapshot(f"s{self.snapshots + 1}").failed():
            return
        self.snapshots += 1
        if self.snapshots > 1 and self.mount.delete_subvolume(f"s{self.snapshots - 1}").failed():
            self.deletions_refused += 1

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
