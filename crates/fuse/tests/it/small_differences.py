"""Prints the answers of calls in which a mount and Linux's Btrfs were found to differ, one a line. Works in an empty directory."""

import array
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
PUNCH, KEEP_SIZE = 2, 1


def answer(name, call, *arguments):
    try:
        value = call(*arguments)
        text = "done" if value is None else str(value)
    except OSError as error:
        text = errno.errorcode.get(error.errno, str(error.errno))
    print(f"{name}: {text}", flush=True)


def ioctl(path, command, data):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, command, data)
    finally:
        os.close(fd)


def names(path):
    return sorted(os.listxattr(path, follow_symlinks=False))


def moved(path, call):
    """Whether a call moves the time of modification, once all is stored."""
    os.utime(path, (1, 1))
    fd = os.open(path, os.O_RDWR)
    call(fd)
    os.fsync(fd)
    os.close(fd)
    return os.stat(path).st_mtime != 1


def punched(offset, length):
    def punch(fd):
        if LIBC.fallocate(fd, PUNCH | KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
            raise OSError(ctypes.get_errno(), "")

    return punch


def mapped(fd):
    with mmap.mmap(fd, 4096) as memory:
        memory[0] = 1


def has_birth_time(path):
    shown = subprocess.run(["stat", "-c", "%W", path], capture_output=True, text=True, check=True)
    return shown.stdout.strip() not in ("0", "-")


open("file", "w").close()
os.mkdir("directory")
os.symlink("file", "link")
os.mkfifo("fifo")
os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
for name in ("file", "directory", "link", "fifo", "null"):
    for value in (b"zstd", b"zlib:3", b"none", b"", b"bogus"):
        answer(f"compression {value} of {name}", lambda: os.setxattr(name, "btrfs.compression", value, follow_symlinks=False))
    answer(f"compression of {name}", lambda: os.getxattr(name, "btrfs.compression", follow_symlinks=False))
    answer(f"names of {name}", names, name)
    answer(f"no compression of {name}", lambda: os.removexattr(name, "btrfs.compression", follow_symlinks=False))
BOTH = os.XATTR_CREATE | os.XATTR_REPLACE
for name in ("file", "directory"):
    for attribute, value in (("user.a", b"b"), ("btrfs.compression", b"zstd")):
        for flags in (BOTH, os.XATTR_REPLACE, os.XATTR_CREATE, os.XATTR_CREATE, os.XATTR_REPLACE, BOTH, 8):
            answer(f"{attribute} of {name}, flags {flags}", os.setxattr, name, attribute, value, flags)
with open("data", "wb") as data:
    data.write(b"x" * 65536)
os.truncate("data", 1 << 20)
answer("a hole in data moves the time", moved, "data", punched(0, 4096))
answer("a hole in a hole moves the time", moved, "data", punched(524288, 65536))
answer("a hole behind the end moves the time", moved, "data", punched(2 << 20, 65536))
os.utime("data", (1, 2))
answer("a mapped write moves the time", moved, "data", mapped)
answer("birth time", has_birth_time, "data")
answer("GETVERSION", ioctl, "data", 0x80087601, bytes(8))
answer("GETFSLABEL", ioctl, "data", 0x81009431, bytes(256))
answer("FITRIM", ioctl, ".", 0xC0185879, struct.pack("QQQ", 0, 1 << 40, 1 << 40))
answer("FIBMAP", ioctl, "data", 1, array.array("i", [0]))
