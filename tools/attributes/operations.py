"""The operations whose attributes are looked at."""

import ctypes
import fcntl
import mmap
import os
import struct

GIVEN = 10**18 + 123_000_000
CONTENT = 20_000
PAST = 1_600_000_000 * 10**9
SET_FLAGS, GET_FLAGS = 0x40086602, 0x80086601
NO_ACCESS_TIMES, SYNCHRONOUS = 0x80, 0x8
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
AT_NOW, AT_OMIT = (1 << 30) - 1, (1 << 30) - 2
LIBC = ctypes.CDLL(None, use_errno=True)
# struct posix_acl_xattr: version 2, the owner rwx, a user 1000 r, the group r, the mask r, others nothing.
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in ((1, 6, 0xFFFFFFFF), (2, 4, 1000), (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF))
)


class Operation:
    """A change of a file in a directory of its own."""

    def __init__(self, name, change, flags=os.O_RDWR, after=None):
        self.name, self.act, self.flags, self.after = name, change, flags, after
        self.directory = self.path = None

    def prepare(self, directory):
        """Makes what is there before; gives the paths to look at: the file, under its later name, and the directory."""
        self.directory, self.path = directory, os.path.join(directory, "file")
        os.mkdir(directory)
        for name in ("file", "other"):
            with open(os.path.join(directory, name), "wb") as file:
                file.write(b"x" * CONTENT)
            # Given ones, since two files made at once may have equal times or not.
            os.utime(file.name, ns=(PAST, PAST))
        if "second" in self.name:
            os.link(self.path, os.path.join(directory, "second"))
        os.setxattr(self.path, "user.old", b"value")
        return [os.path.join(directory, self.after or "file"), directory]

    def open(self):
        return os.open(self.path, self.flags)

    def change(self, handle, mount):
        self.act(self, handle, mount)

    def at(self, name):
        return os.path.join(self.directory, name)


def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "a system call")


def fallocate(mode, start, length):
    long = ctypes.c_long
    return lambda _, handle, __: call(LIBC.fallocate(handle, mode, long(start), long(length)))


def set_flag(flag):
    def change(_, handle, __):
        flags = struct.unpack("i", fcntl.ioctl(handle, GET_FLAGS, b"\0" * 4))[0]
        fcntl.ioctl(handle, SET_FLAGS, struct.pack("i", flags | flag))

    return change


def set_times(access, modification):
    """Each either a special value or the given time."""

    def change(_, handle, __):
        times = [(0, time) if time in (AT_NOW, AT_OMIT) else divmod(time, 10**9) for time in (access, modification)]
        flat = (ctypes.c_long * 4)(*(number for pair in times for number in pair))
        call(LIBC.futimens(handle, flat))

    return change


def direct(_, handle, __):
    buffer = mmap.mmap(-1, 8192)
    buffer.write(b"d" * 8192)
    os.pwrite(handle, buffer, 0)


def mapped(is_synced):
    def change(_, handle, __):
        mapping = mmap.mmap(handle, CONTENT)
        mapping[9000] = 66
        if is_synced:
            mapping.flush()
        # It lives on with the operation, as the mapping of a program that runs.
        KEPT.append(mapping)

    return change


KEPT = []


def unmap():
    while KEPT:
        KEPT.pop().close()


def copy_range(operation, handle, _):
    source = os.open(operation.at("other"), os.O_RDONLY)
    os.copy_file_range(source, handle, 8192, 0, 4096)
    os.close(source)


def send(operation, handle, _):
    source = os.open(operation.at("other"), os.O_RDONLY)
    os.sendfile(handle, source, 0, 5000)
    os.close(source)


def write_and_sync(_, handle, __):
    os.write(handle, b"w" * 30_000)
    os.fsync(handle)


def reopen_truncated(operation, _, __):
    os.close(os.open(operation.path, os.O_WRONLY | os.O_TRUNC))


def make_and_remove_directory(operation, _, __):
    os.mkdir(operation.at("new"))
    os.rmdir(operation.at("new"))


def make_and_delete_subvolume(operation, _, mount):
    mount.subvolume("create", operation.at("subvolume"))
    mount.subvolume("delete", operation.at("subvolume"))


def write_after_flag(_, handle, __):
    set_flag(SYNCHRONOUS)(_, handle, __)
    os.write(handle, b"w" * 100)


def rename(source, target):
    return lambda operation, _, __: os.rename(operation.at(source), operation.at(target))


def simple(act):
    """A change that needs the descriptor alone."""
    return lambda _, handle, __: act(handle)


def named(act):
    """A change that needs a path alone: a function of the operation."""
    return lambda operation, _, __: act(operation)


OPERATIONS = [
    Operation("overwrite", simple(lambda handle: os.pwrite(handle, b"w" * 5000, 3000))),
    Operation("write behind the end", simple(lambda handle: os.pwrite(handle, b"w" * 5000, 100_000))),
    Operation("append", simple(lambda handle: os.write(handle, b"w" * 5000)), os.O_WRONLY | os.O_APPEND),
    Operation("append twice", simple(lambda handle: [os.write(handle, b"w" * 9000) for _ in "ab"]), os.O_WRONLY | os.O_APPEND),
    Operation("write vectors", simple(lambda handle: os.pwritev(handle, [b"v" * 3000, b"w" * 3000], 0))),
    Operation("write and fsync", write_and_sync),
    Operation("O_SYNC write", simple(lambda handle: os.pwrite(handle, b"s" * 5000, 0)), os.O_RDWR | os.O_SYNC),
    Operation("O_DIRECT write", direct, os.O_RDWR | os.O_DIRECT),
    Operation("mapped, with msync", mapped(True)),
    Operation("mapped, without msync", mapped(False)),
    Operation("ftruncate down", simple(lambda handle: os.ftruncate(handle, 5000))),
    Operation("ftruncate up", simple(lambda handle: os.ftruncate(handle, 50_000))),
    Operation("ftruncate to the same", simple(lambda handle: os.ftruncate(handle, CONTENT))),
    Operation("truncate by path", named(lambda operation: os.truncate(operation.path, 100))),
    Operation("open with O_TRUNC", reopen_truncated),
    Operation("fallocate", fallocate(0, 0, 100_000)),
    Operation("fallocate, size kept", fallocate(KEEP_SIZE, 0, 100_000)),
    Operation("punch a hole", fallocate(KEEP_SIZE | PUNCH_HOLE, 4096, 8192)),
    Operation("zero a range", fallocate(ZERO_RANGE, 4096, 8192)),
    Operation("copy a range", copy_range),
    Operation("sendfile", send),
    Operation("read", simple(lambda handle: os.read(handle, 100)), os.O_RDONLY),
    Operation("chmod", simple(lambda handle: os.fchmod(handle, 0o640))),
    Operation("chown", simple(lambda handle: os.fchown(handle, 1000, 1000))),
    Operation("chown of set-id", simple(lambda handle: [os.fchmod(handle, 0o6755), os.fchown(handle, 1000, 1000)])),
    Operation("set an attribute", simple(lambda handle: os.setxattr(handle, "user.new", b"value"))),
    Operation("remove an attribute", simple(lambda handle: os.removexattr(handle, "user.old"))),
    Operation("set an ACL", simple(lambda handle: os.setxattr(handle, "system.posix_acl_access", ACL))),
    Operation("set compression", simple(lambda handle: os.setxattr(handle, "btrfs.compression", b"zstd"))),
    Operation("times to now", set_times(AT_NOW, AT_NOW)),
    Operation("times given", set_times(GIVEN, GIVEN)),
    Operation("access time given", set_times(GIVEN, AT_OMIT)),
    Operation("modification time given", set_times(AT_OMIT, GIVEN)),
    Operation("write, then times given", lambda *all: [os.pwrite(all[1], b"w", 0), set_times(GIVEN, GIVEN)(*all)]),
    Operation("times given, then write", lambda *all: [set_times(GIVEN, GIVEN)(*all), os.pwrite(all[1], b"w", 0)]),
    Operation("chattr", set_flag(NO_ACCESS_TIMES)),
    Operation("chattr +S", set_flag(SYNCHRONOUS)),
    Operation("chattr +S, then write", write_after_flag),
    Operation("link", named(lambda operation: os.link(operation.path, operation.at("new")))),
    Operation("unlink a second name", named(lambda operation: os.unlink(operation.at("second")))),
    Operation("rename", rename("file", "renamed"), after="renamed"),
    Operation("rename over another", rename("file", "other"), after="other"),
    Operation("replaced by another", rename("other", "file")),
    Operation("unlink", named(lambda operation: os.unlink(operation.path))),
    Operation("make a file", named(lambda operation: os.close(os.open(operation.at("new"), os.O_CREAT)))),
    Operation("make a directory", named(lambda operation: os.mkdir(operation.at("new")))),
    Operation("make and remove a directory", make_and_remove_directory),
    Operation("make a symbolic link", named(lambda operation: os.symlink("file", operation.at("new")))),
    Operation("make a FIFO", named(lambda operation: os.mkfifo(operation.at("new")))),
    Operation("make and delete a subvolume", make_and_delete_subvolume),
]
