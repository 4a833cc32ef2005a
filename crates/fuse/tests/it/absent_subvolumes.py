"""Prints what calls answer on what stands in snapshots for nested subvolumes.

Usage: absent_subvolumes.py ROOT, where ROOT holds the snapshots `s` and `o` (writable) and `r` (read-only) of one
subvolume that holds the subvolumes `in`, `two`, `three`, `four`, `five`, a file `f`, a directory `empty` and a directory
`full` that is not empty. `o` belongs to user 1234. Beside them are a directory `outside` and the subvolumes `mine_s`,
`mine_r` and `mine_o`, with a file `here` each.
"""

import ctypes
import errno
import fcntl
import os
import stat
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
os.chdir(sys.argv[1])
os.umask(0)


def renameat2(old, new, flags):
    if LIBC.renameat2(-100, old.encode(), -100, new.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), "")


def answer(name, call, *arguments, **named):
    try:
        value = call(*arguments, **named)
        text = "done" if value is None else str(value)
    except OSError as error:
        text = errno.errorcode.get(error.errno, str(error.errno))
    print(f"{'root' if os.getuid() == 0 else 'user'} {name}: {text}", flush=True)


def shown(path):
    """What stat(2) tells, without times that nobody set and inode numbers, which are a mount's own."""
    found = os.lstat(path)
    return f"{found.st_mode:o} {found.st_uid}:{found.st_gid} {found.st_nlink} links {found.st_size} bytes"


def times(path):
    found = os.lstat(path)
    return f"{found.st_atime_ns} {found.st_mtime_ns}"


def ioctl(path, command, size):
    directory = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, command, bytes(size))
    finally:
        os.close(directory)


def created(path, flags=0):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o644))


def opened(path, flags):
    os.close(os.open(path, flags))


def unnamed(call):
    """A call of a user without rights."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(1234)
        os.setuid(1234)
        answer("done as a user", call)
        os._exit(0)
    os.waitpid(pid, 0)


def changed(snapshot):
    """Attributes: taken, and forgotten with the inode."""
    at = f"{snapshot}/in"
    answer(f"{at} stat", shown, at)
    answer(f"{at} list", os.listdir, at)
    answer(f"{at} chmod", os.chmod, at, 0o700)
    answer(f"{at} chmod shown", shown, at)
    answer(f"{at} chmod set-id", os.chmod, at, 0o7777)
    answer(f"{at} set-id shown", shown, at)
    answer(f"{at} chown", os.chown, at, 12, 34)
    answer(f"{at} chown shown", shown, at)
    answer(f"{at} chown none", os.chown, at, -1, -1)
    answer(f"{at} lchown", os.lchown, at, 0, 0)
    answer(f"{at} utime", os.utime, at, ns=(1_000_000_001, 2_000_000_002))
    answer(f"{at} utime now", os.utime, at)
    answer(f"{at} truncate", os.truncate, at, 0)
    answer(f"{at} chmod back", os.chmod, at, 0o755)
    directory = os.open(at, os.O_RDONLY)
    answer(f"{at} fchmod", os.fchmod, directory, 0o711)
    answer(f"{at} fchown", os.fchown, directory, 5, 6)
    answer(f"{at} futimens", os.utime, directory, ns=(3_000_000_003, 4_000_000_004))
    answer(f"{at} fchmod shown", shown, at)
    if os.getuid() == 0:
        answer(f"{at} futimens shown", times, at)
    answer(f"{at} fsync", os.fsync, directory)
    answer(f"{at} fdatasync", os.fdatasync, directory)
    answer(f"{at} fchown back", os.fchown, directory, 0, 0)
    answer(f"{at} fchmod back", os.fchmod, directory, 0o755)
    os.close(directory)
    answer(f"{at} setxattr", os.setxattr, at, "user.a", b"b")
    answer(f"{at} setxattr create", os.setxattr, at, "user.a", b"b", os.XATTR_CREATE)
    answer(f"{at} setxattr trusted", os.setxattr, at, "trusted.a", b"b")
    answer(f"{at} setxattr security", os.setxattr, at, "security.a", b"b")
    answer(f"{at} setxattr btrfs", os.setxattr, at, "btrfs.compression", b"zstd")
    answer(f"{at} setxattr unknown", os.setxattr, at, "nowhere.a", b"b")
    acl = b"\2\0\0\0\1\0\7\0\xff\xff\xff\xff\4\0\5\0\xff\xff\xff\xff\x20\0\5\0\xff\xff\xff\xff"
    answer(f"{at} setxattr acl", os.setxattr, at, "system.posix_acl_access", acl)
    answer(f"{at} setxattr default acl", os.setxattr, at, "system.posix_acl_default", acl)
    answer(f"{at} getxattr", os.getxattr, at, "user.a")
    answer(f"{at} getxattr acl", os.getxattr, at, "system.posix_acl_access")
    answer(f"{at} getxattr btrfs", os.getxattr, at, "btrfs.compression")
    answer(f"{at} listxattr", os.listxattr, at)
    answer(f"{at} removexattr", os.removexattr, at, "user.a")
    answer(f"{at} removexattr acl", os.removexattr, at, "system.posix_acl_access")
    for name, command, size in (
        ("GETFLAGS", 0x80086601, 8),
        ("SETFLAGS", 0x40086602, 8),
        ("FSGETXATTR", 0x801C581F, 28),
        ("FSSETXATTR", 0x401C5820, 28),
    ):
        answer(f"{at} {name}", ioctl, at, command, size)
    answer(f"{at} access w", os.access, at, os.W_OK)
    answer(f"{at} access x", os.access, at, os.X_OK)
    answer(f"{at} stat of a name in it", os.stat, f"{at}/none")


def filled(snapshot):
    """Names in it."""
    at = f"{snapshot}/in"
    answer(f"{at} open for writing", opened, at, os.O_WRONLY)
    answer(f"{at} create", created, f"{at}/x")
    answer(f"{at} create excl", created, f"{at}/x", os.O_EXCL)
    answer(f"{at} create directory", opened, f"{at}/x", os.O_RDONLY | os.O_CREAT | os.O_DIRECTORY)
    answer(f"{at} mkdir", os.mkdir, f"{at}/x")
    answer(f"{at} symlink", os.symlink, "f", f"{at}/x")
    answer(f"{at} link", os.link, f"{snapshot}/f", f"{at}/x")
    answer(f"{at} mkfifo", os.mkfifo, f"{at}/x")
    answer(f"{at} mknod", os.mknod, f"{at}/x", stat.S_IFREG | 0o644)
    answer(f"{at} mknod device", os.mknod, f"{at}/x", stat.S_IFCHR | 0o644, os.makedev(1, 3))
    answer(f"{at} rename into", os.rename, f"{snapshot}/f", f"{at}/x")
    answer(f"{at} rename directory into", os.rename, f"{snapshot}/full", f"{at}/x")
    answer(f"{at} rename out", os.rename, f"{at}/x", f"{snapshot}/x")
    answer(f"{at} unlink in", os.unlink, f"{at}/x")
    answer(f"{at} rmdir in", os.rmdir, f"{at}/x")


def moved(snapshot):
    """Its own name."""
    at = f"{snapshot}/in"
    answer(f"{at} rename", os.rename, at, f"{snapshot}/new")
    answer(f"{at} rename to a directory", os.rename, at, f"{snapshot}/full")
    answer(f"{at} rename to itself", os.rename, at, at)
    answer(f"{at} rename to another", os.rename, at, f"{snapshot}/two")
    answer(f"{at} rename noreplace", renameat2, at, f"{snapshot}/new", NOREPLACE)
    answer(f"{at} rename outside", os.rename, at, "outside")
    answer(f"{at} link of it", os.link, at, f"{snapshot}/new")
    answer(f"{at} unlink", os.unlink, at)
    answer(f"{at} rename file onto", os.rename, f"{snapshot}/f", at)
    answer(f"{at} noreplace onto", renameat2, f"{snapshot}/full", at, NOREPLACE)


def replaced(snapshot):
    """Another directory in its place."""
    for name, directory in (("two", "empty"), ("three", "full")):
        at = f"{snapshot}/{name}"
        answer(f"{at} rename {directory} onto", os.rename, f"{snapshot}/{directory}", at)
        answer(f"{at} is now", shown, at)
        answer(f"{at} holds", os.listdir, at)
    answer(f"{snapshot}/four directory from outside", os.rename, "outside", f"{snapshot}/four")
    answer(f"{snapshot}/four rmdir", os.rmdir, f"{snapshot}/four")
    answer(f"{snapshot}/four again", os.rmdir, f"{snapshot}/four")
    answer(f"{snapshot}/four made", os.mkdir, f"{snapshot}/four")
    answer(f"{snapshot}/four file in it", created, f"{snapshot}/four/file")
    answer(f"{snapshot}/five subvolume onto", os.rename, f"mine_{snapshot}", f"{snapshot}/five")
    answer(f"{snapshot}/five holds", os.listdir, f"{snapshot}/five")


for snapshot in ("s", "r", "o"):
    changed(snapshot)
    filled(snapshot)
    moved(snapshot)
    unnamed(lambda snapshot=snapshot: changed(snapshot) or filled(snapshot) or moved(snapshot))
    replaced(snapshot)
answer("s lists", lambda: sorted(os.listdir("s")))
answer("r lists", lambda: sorted(os.listdir("r")))
answer("o lists", lambda: sorted(os.listdir("o")))
