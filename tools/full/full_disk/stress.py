"""Several processes change a small file system at random until it is full; one snapshot is renewed."""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import shutil
import signal
import time

from .records import Opened
from .scattered import STRIDE_BYTES

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
GET_FLAGS, SET_FLAGS, NO_ATIME = 0x80086601, 0x40086602, 0x80
NOISE_BYTES = 1 << 20
# Errors after which a worker stops: no lack of space explains them.
BROKEN = (errno.EROFS, errno.EIO, errno.ENOTCONN, errno.ECONNABORTED)
# A copy onto itself that overlaps.
EXPECTED = ("copy: EINVAL",)

# Weights of the operations.
PROFILES = {
    "all": dict(create=22, overwrite=20, tiny=8, sparse=6, truncate=8, allocate=4, punch=5, zero=3,
                attribute=8, link=4, rename=5, unlink=6, mkdir=3, remove_tree=1, copy=4, mapped=4, direct=5,
                sync_file=2, symlink=3, flags=1, append=5),
    # Changes of extents and nothing else: every write is a small extent of its own.
    "extents": dict(create=10, overwrite=35, tiny=5, sparse=25, truncate=3, punch=10, direct=12, unlink=2,
                    sync_file=1, allocate=4, zero=3, copy=8),
    # Names and attributes, hardly any data.
    "names": dict(create=40, attribute=20, link=10, rename=10, unlink=5, mkdir=6, remove_tree=1, symlink=8,
                  truncate=2),
    "meta": dict(create=30, tiny=12, overwrite=15, attribute=18, link=6, rename=6, unlink=4, mkdir=3, copy=3,
                 truncate=5, punch=6, direct=3, symlink=8, sparse=6, sync_file=1),
    # A database's file of random sectors beside small files.
    "dbmix": dict(database=10, small=60, create=1, overwrite=8, attribute=12, unlink=4, rename=3, tiny=6,
                  sync_file=1, symlink=6, punch=3),
}
# Without mappings, whose pages FUSE can't refuse, and without flags.
PROFILES["unmapped"] = {name: weight for name, weight in PROFILES["all"].items()
                        if name not in ("mapped", "flags")}
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


class Worker:
    """One process's changes, in a directory of its own."""

    def __init__(self, top, seed, profile):
        self.random = random.Random(seed)
        self.noise = self.random.randbytes(NOISE_BYTES)
        self.top, self.directories, self.files = top, [top], []
        self.count = self.operations = self.refused = 0
        self.errors = {}
        self.names, self.weights = list(PROFILES[profile]), list(PROFILES[profile].values())
        self.page_memory = mmap.mmap(-1, NOISE_BYTES)
        self.page_memory.write(self.noise)
        os.makedirs(top, exist_ok=True)

    def new_path(self, kind):
        self.count += 1
        return f"{self.random.choice(self.directories)}/{kind}{self.count}"

    def pick(self):
        return self.random.choice(self.files)

    def bytes(self, length):
        """Content, of which now and then the first half is zeros."""
        offset = self.random.randrange(NOISE_BYTES - length + 1)
        content = self.noise[offset:offset + length]
        if self.random.random() < .3:
            content = bytes(length // 2) + content[length // 2:]
        return content

    def size(self):
        draw = self.random.randrange
        return self.random.choice([0, draw(1, 100), draw(1, 2000), draw(1, 4096), 4096, draw(1, 20000),
                                   draw(1, 70000), draw(1, 300_000)])

    def create_with(self, size):
        path = self.new_path("f")
        with open(path, "wb", buffering=0) as file:
            self.files.append(path)
            if size:
                file.write(self.bytes(size))

    def create(self):
        self.create_with(self.size())

    def small(self):
        self.create_with(self.random.randrange(100, 1000))

    def overwrite(self):
        with Opened(self.pick(), os.O_RDWR) as file:
            size = os.fstat(file).st_size
            for _ in range(self.random.randrange(1, 12)):
                offset = self.random.randrange(size + 1)
                os.pwrite(file, self.bytes(self.random.randrange(1, 9000)), offset)

    def tiny(self):
        with Opened(self.pick(), os.O_RDWR) as file:
            offset = self.random.randrange(os.fstat(file).st_size + 1)
            os.pwrite(file, self.bytes(self.random.randrange(1, 64)), offset)

    def sparse(self):
        with Opened(self.pick(), os.O_RDWR) as file:
            for _ in range(self.random.randrange(1, 12)):
                content = self.bytes(self.random.choice([1, 100, 4096, 4096, 5000]))
                os.pwrite(file, content, self.random.randrange(1 << 22))

    def append(self):
        with Opened(self.pick(), os.O_WRONLY | os.O_APPEND) as file:
            os.write(file, self.bytes(self.size()))

    def truncate(self):
        os.truncate(self.pick(), self.random.randrange(400_000))

    def call_fallocate(self, mode, most):
        with Opened(self.pick(), os.O_RDWR) as file:
            offset, length = self.random.randrange(500_000), self.random.randrange(1, most)
            if libc.fallocate(file, mode, offset, length):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def allocate(self):
        self.call_fallocate(self.random.choice([0, KEEP_SIZE]), 200_000)

    def punch(self):
        self.call_fallocate(PUNCH_HOLE | KEEP_SIZE, 50_000)

    def zero(self):
        self.call_fallocate(ZERO_RANGE | self.random.choice([0, KEEP_SIZE]), 50_000)

    def attribute(self):
        path, name = self.pick(), f"user.x{self.random.randrange(8)}"
        if self.random.random() < .8:
            os.setxattr(path, name, self.bytes(self.random.randrange(3000)))
            return
        try:
            os.removexattr(path, name)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise

    def link(self):
        path = self.new_path("l")
        os.link(self.pick(), path)
        self.files.append(path)

    def rename(self):
        index, new = self.random.randrange(len(self.files)), self.new_path("r")
        if self.random.random() < .2:
            new = self.pick()
        old = self.files[index]
        if old == new:
            return
        os.rename(old, new)
        self.files.pop(index)
        if new not in self.files[-2000:]:
            self.files.append(new)

    def unlink(self):
        index = self.random.randrange(len(self.files))
        os.unlink(self.files[index])
        self.files.pop(index)

    def mkdir(self):
        path = self.new_path("d")
        os.mkdir(path)
        self.directories.append(path)
        if len(self.directories) > 300:
            self.directories.pop(1)

    def remove_tree(self):
        if len(self.directories) < 3:
            return
        errors = []
        top = self.random.choice(self.directories[1:])
        shutil.rmtree(top, onerror=lambda _function, _path, told: errors.append(told[1]))
        for error in errors:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, *BROKEN):
                raise error

    def copy(self):
        draw = self.random.randrange
        with Opened(self.pick(), os.O_RDONLY) as source, Opened(self.pick(), os.O_RDWR) as target:
            os.copy_file_range(source, target, draw(1, 100_000), draw(300_000), draw(300_000))

    def mapped(self):
        """Writes through a mapping. Where a page can't be placed the process gets SIGBUS, which ends it."""
        with Opened(self.pick(), os.O_RDWR) as file:
            size = os.fstat(file).st_size
            if size < 4096:
                return
            mapping = mmap.mmap(file, size)
            for _ in range(self.random.randrange(1, 8)):
                offset = self.random.randrange(size)
                length = min(size - offset, self.random.randrange(1, 5000))
                mapping[offset:offset + length] = self.noise[:length]
            mapping.close()

    def write_direct(self, file, length, offset):
        with memoryview(self.page_memory) as memory, memory[:length] as part:
            os.pwritev(file, [part], offset)

    def direct(self):
        with Opened(self.pick(), os.O_RDWR | os.O_DIRECT) as file:
            self.write_direct(file, 4096 * self.random.randrange(1, 16), 4096 * self.random.randrange(100))

    def database(self):
        with Opened(f"{self.top}/db", os.O_RDWR | os.O_CREAT | os.O_DIRECT) as file:
            for _ in range(30):
                self.write_direct(file, 4096, STRIDE_BYTES * self.random.randrange(15_000))

    def sync_file(self):
        with Opened(self.pick(), os.O_RDWR) as file:
            os.fsync(file)

    def symlink(self):
        os.symlink("t" * self.random.randrange(1, 3000), self.new_path("s"))

    def flags(self):
        with Opened(self.pick(), os.O_RDWR) as file:
            flags = bytearray(8)
            fcntl.ioctl(file, GET_FLAGS, flags)
            toggled = int.from_bytes(flags, "little") ^ NO_ATIME
            fcntl.ioctl(file, SET_FLAGS, toggled.to_bytes(8, "little"))

    def step(self):
        """One operation. Gives whether the file system still works."""
        name = self.random.choices(self.names, self.weights)[0] if self.files else "create"
        self.operations += 1
        try:
            getattr(self, name)()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self.refused += 1
            else:
                key = f"{name}: {errno.errorcode.get(error.errno, error.errno)}"
                self.errors[key] = self.errors.get(key, 0) + 1
            if error.errno == errno.ENOENT:
                self.files = [path for path in self.files if os.path.lexists(path)]
                there = [path for path in self.directories[1:] if os.path.isdir(path)]
                self.directories = [self.top, *there]
            return error.errno not in BROKEN
        return True

    def work(self, end):
        broken = False
        while not broken and time.monotonic() < end:
            broken = not self.step()
        return {"operations": self.operations, "refused": self.refused, "errors": self.errors,
                "broken": broken}


def spawn(run, mount, index, end):
    """Starts a worker. Gives its process and the pipe on which it tells its figures."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    told = {}
    try:
        worker = Worker(f"{mount.point}/p{index}", run.arguments.seed * 1000 + index, run.arguments.profile)
        told = worker.work(end)
    except BaseException as error:  # pylint: disable=broad-except
        told = {"broken": True, "errors": {repr(error)[:100]: 1}}
    finally:
        os.write(writing, json.dumps(told).encode())
        os._exit(0)


def collect(workers, figures):
    """Waits for the workers and adds their figures."""
    for pid, pipe in workers:
        with open(pipe, "rb") as lines:
            told = lines.read()
        _, status = os.waitpid(pid, 0)
        told = json.loads(told) if told else {"errors": {f"a worker ended with status {status}": 1}}
        for name in ("operations", "refused"):
            figures[name] += told.get(name, 0)
        for name, count in told.get("errors", {}).items():
            if "ENOENT" not in name:
                figures["errors"][name] = figures["errors"].get(name, 0) + count
        figures["broken"] = figures["broken"] or told.get("broken", False)


def renew_snapshots(run, mount, end, figures):
    """Renews one snapshot again and again. An older one is deleted as soon as the next one is there."""
    alive, renew = [], run.arguments.renew
    while time.monotonic() + (renew or 1) < end and not mount.complaints():
        time.sleep(renew or 1)
        if not renew:
            continue
        name = f"s{figures['snapshots'] + 1}"
        if mount.snapshot(name).failed():
            figures["snapshots_refused"] += 1
        else:
            figures["snapshots"] += 1
            alive.append(name)
        while len(alive) > 1:
            if mount.delete_subvolume(alive[0]).failed():
                figures["snapshot_deletions_refused"] += 1
                break
            alive.pop(0)


def stress(run, mount):
    """Random changes by several processes, with a snapshot that is renewed every few seconds."""
    end = time.monotonic() + run.arguments.seconds
    figures = {"operations": 0, "refused": 0, "errors": {}, "broken": False, "snapshots": 0,
               "snapshots_refused": 0, "snapshot_deletions_refused": 0}
    workers = [spawn(run, mount, index, end) for index in range(run.arguments.processes)]
    try:
        renew_snapshots(run, mount, end, figures)
        collect(workers, figures)
        workers = []
    finally:
        for pid, _ in workers:
            os.kill(pid, signal.SIGKILL)
    unexpected = {name: count for name, count in figures["errors"].items() if name not in EXPECTED}
    if unexpected:
        run.violations.append(f"workload: errors that no lack of space explains: {unexpected}")
    if figures.pop("broken"):
        run.violations.append("the file system broke under the workload")
    return figures
