#!/usr/bin/env python3
"""Compares what becomes of set-id bits and capabilities of files with Linux's own Btrfs.

Each operation on a file, each user, each mode: on Linux's file system and on a mount, in each of the mount's
ways. Prints the differences and one line of JSON. The exit status is 0 if there are no others than those that
docs/known-limits.md lists, 1 otherwise, 2 for wrong arguments or where something needed is missing. Needs root,
/dev/fuse, Linux's btrfs and mkfs.btrfs.
"""

import argparse
import ctypes
import fcntl
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

BLOCK = 4096
SIZE = 4 * BLOCK
OWNER, MEMBER, OTHER = 50_001, 50_002, 50_003
FILE_GROUP, OTHER_GROUP = 60_001, 60_002
CAP_FSETID = 4
# struct vfs_cap_data, version 2: CAP_NET_RAW may be had.
CAPABILITY = bytes.fromhex("0000000200200000000000000000000000000000")
MODES = ["6755", "2755", "4755", "2666", "6666", "4666", "2777", "6777", "0777", "0777+cap", "6777+cap", "2644"]
LIBC = ctypes.CDLL(None, use_errno=True)
FALLOC_KEEP, FALLOC_PUNCH, FALLOC_ZERO = 1, 2, 16
# Name, options of the mount.
WAYS = [("default", ""), ("writeback=off", "writeback=off"), ("killpriv=kernel", "killpriv=kernel"),
        ("killpriv=kernel,writeback=off", "killpriv=kernel,writeback=off")]


class Who:
    """A user as one process is."""

    def __init__(self, user, group, groups=(), drops=(), keeps=()):
        self.user, self.group, self.groups, self.drops, self.keeps = user, group, list(groups), drops, keeps

    def become(self):
        os.setgroups(self.groups)
        os.setresgid(self.group, self.group, self.group)
        if self.keeps:
            prctl(8, 1)  # PR_SET_KEEPCAPS
        if self.user:
            os.setresuid(self.user, self.user, self.user)
        if self.keeps:
            set_capabilities(sum(1 << number for number in self.keeps))
        elif self.drops:
            set_capabilities(own_capabilities() & ~sum(1 << number for number in self.drops))


USERS = {
    "root": Who(0, 0),
    "root without CAP_FSETID": Who(0, 0, drops=[CAP_FSETID]),
    "owner in the group": Who(OWNER, FILE_GROUP),
    "owner in the group by a further one": Who(OWNER, OTHER_GROUP, [FILE_GROUP]),
    "owner outside the group": Who(OWNER, OTHER_GROUP),
    "other in the group": Who(MEMBER, MEMBER, [OTHER_GROUP, FILE_GROUP]),
    "other": Who(OTHER, OTHER, [OTHER_GROUP]),
    "other with CAP_FSETID": Who(OTHER, OTHER, keeps=[CAP_FSETID]),
    "root of a user namespace": Who(OTHER, OTHER),
}


def prctl(option, value):
    if LIBC.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def own_capabilities():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))


def set_capabilities(wanted):
    """Of this process, effective and permitted."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    low, high = wanted & 0xffff_ffff, wanted >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    if LIBC.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def fallocate(number, mode, offset, length):
    if LIBC.fallocate(number, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def write_direct(path, number):
    """Through a buffer whose address is a whole number of blocks."""
    fcntl.fcntl(number, fcntl.F_SETFL, os.O_DIRECT)
    with mmap.mmap(-1, BLOCK) as buffer:
        os.pwritev(number, [buffer], 0)


def write_mapped(path, number):
    with mmap.mmap(number, SIZE) as mapping:
        mapping[0] = 7


def append(path, number):
    fcntl.fcntl(number, fcntl.F_SETFL, os.O_APPEND)
    os.write(number, b"x")


def copy_from_another(path, number):
    os.copy_file_range(os.open(f"{os.path.dirname(path)}/source", os.O_RDONLY), number, BLOCK, 0, 0)


def open_to_cut(path, _):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def change_mode(path, _):
    os.chmod(path, os.stat(path).st_mode & 0o7777)


OPERATIONS = {
    "write": lambda path, number: os.write(number, b"x" * 10),
    "write of nothing": lambda path, number: os.write(number, b""),
    "pwrite at the end": lambda path, number: os.pwrite(number, b"x", SIZE),
    "append": append,
    "direct write": write_direct,
    "mapped write": write_mapped,
    "truncate": lambda path, number: os.truncate(path, BLOCK),
    "truncate to the same size": lambda path, number: os.truncate(path, SIZE),
    "truncate to more": lambda path, number: os.truncate(path, 2 * SIZE),
    "ftruncate": lambda path, number: os.ftruncate(number, BLOCK),
    "open with O_TRUNC": open_to_cut,
    "fallocate": lambda path, number: fallocate(number, 0, SIZE, BLOCK),
    "fallocate, size kept": lambda path, number: fallocate(number, FALLOC_KEEP, SIZE, BLOCK),
    "punch": lambda path, number: fallocate(number, FALLOC_KEEP | FALLOC_PUNCH, 0, BLOCK),
    "zero range": lambda path, number: fallocate(number, FALLOC_ZERO, 0, BLOCK),
    "copy_file_range": copy_from_another,
    "chown of nothing": lambda path, number: os.chown(path, -1, -1),
    "chown to the owner": lambda path, number: os.chown(path, OWNER, -1),
    "chown to another user": lambda path, number: os.chown(path, OTHER, -1),
    "chgrp to the same": lambda path, number: os.chown(path, -1, FILE_GROUP),
    "chgrp to another": lambda path, number: os.chown(path, -1, OTHER_GROUP),
    "fchown": lambda path, number: os.fchown(number, OWNER, OTHER_GROUP),
    "chmod": change_mode,
}
# Twice: what is remembered of the first change must not decide the second.
AGAIN = ["write", "pwrite at the end", "direct write", "fallocate", "truncate"]


def act(path, number, who, operation, in_namespace):
    """In a process of its own. Gives how it ended."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    code = 0
    try:
        who.become()
        if in_namespace:
            if LIBC.unshare(0x1000_0000):
                raise OSError(ctypes.get_errno(), "unshare")
            prctl(4, 1)  # PR_SET_DUMPABLE: its files in /proc are its own.
            map_to_root(who)
        OPERATIONS[operation](path, number)
    except OSError as error:
        code = error.errno
    except BaseException as error:
        # It would be taken for success.
        print(f"{operation}: {error!r}", file=sys.stderr)
        code = 255
    finally:
        os._exit(code)


def map_to_root(who):
    # Bytes: this user may not be able to load what Python needs for texts.
    with open("/proc/self/setgroups", "wb", buffering=0) as file:
        file.write(b"deny")
    for name, own in (("uid_map", who.user), ("gid_map", who.group)):
        with open(f"/proc/self/{name}", "wb", buffering=0) as file:
            file.write(b"0 %d 1" % own)


def prepare(path, mode):
    bits, _, capability = mode.partition("+")
    with open(path, "wb") as file:
        file.write(b"y" * SIZE)
    os.chown(path, OWNER, FILE_GROUP)
    os.chmod(path, int(bits, 8))
    if capability:
        os.setxattr(path, "security.capability", CAPABILITY)


def shown(path):
    capability = "security.capability" in os.listxattr(path)
    return f"{os.stat(path).st_mode & 0o7777:04o}{'+cap' if capability else ''}"


def cell(directory, user, operation, mode, times):
    """What is left of a file's mode, and how the last operation ended."""
    path = f"{directory}/file"
    prepare(path, mode)
    number = os.open(path, os.O_RDWR)
    try:
        for _ in range(times):
            ended = act(path, number, USERS[user], operation, "namespace" in user)
            left = shown(path)
            if times > 1:
                os.chmod(path, int(mode.partition("+")[0], 8))
    finally:
        os.close(number)
        os.unlink(path)
    return f"{left} {os.strerror(ended) if ended else 'done'}"


def cells():
    return [(user, operation, mode, times) for operation in OPERATIONS for user in USERS for mode in MODES
            for times in ((1, 2) if operation in AGAIN else (1,))]


def outcomes(directory, table):
    os.chmod(directory, 0o777)
    with open(f"{directory}/source", "wb") as file:
        file.write(b"z" * SIZE)
    os.chmod(f"{directory}/source", 0o644)
    return {key: cell(directory, *key) for key in table}


class Place:
    """A scratch directory with an image and a place to mount it at."""

    def __init__(self, tool, options):
        self.tool, self.options = tool, options
        self.top = tempfile.mkdtemp(prefix="vlinder-setid-", dir="/dev/shm")
        os.chmod(self.top, 0o755)
        self.image, self.point = f"{self.top}/image", f"{self.top}/mount"
        os.mkdir(self.point)
        with open(self.image, "wb") as file:
            file.truncate(256 << 20)
        require("mkfs.btrfs", "-q", self.image)

    def mount(self):
        if self.options is None:
            require("mount", "-t", "btrfs", "-o", "loop", self.image, self.point)
        else:
            require(self.tool, "mount", "-o", f"allow_other,owners=keep,{self.options}".strip(","), self.image, self.point)

    def unmount(self):
        if self.options is None:
            require("umount", self.point)
        else:
            # It waits for the server, which has the image until then.
            require(self.tool, "umount", self.point)

    def close(self):
        subprocess.run(["umount", "-q", "-l", self.point], check=False)
        shutil.rmtree(self.top, ignore_errors=True)


def require(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def under(tool, options, work):
    place = Place(tool, options)
    try:
        place.mount()
        found = work(place.point)
        place.unmount()
        return found
    finally:
        place.close()


def keeps_capabilities(linux, own):
    return all("+cap" in own[mode] for mode, left in linux.items() if "+cap" in left)


def through_an_overlay(directory):
    """What a file's mode is after an overlay has copied it up."""
    kept = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        for name in ("low", "seen"):
            os.mkdir(f"{top}/{name}")
        for name in ("upper", "work"):
            os.mkdir(f"{directory}/{name}")
        for mode in MODES:
            prepare(f"{top}/low/{mode}", mode)
        options = f"lowerdir={top}/low,upperdir={directory}/upper,workdir={directory}/work"
        require("mount", "-t", "overlay", "overlay", "-o", options, f"{top}/seen")
        try:
            for mode in MODES:
                os.utime(f"{top}/seen/{mode}")
                kept[mode] = shown(f"{top}/seen/{mode}")
        finally:
            require("umount", f"{top}/seen")
    return kept


def differences(way, linux, own):
    """Cells that differ from Linux's, but for those that docs/known-limits.md explains."""
    listed = unlisted = 0
    for key, expected in linux.items():
        if own[key] == expected:
            continue
        if is_known(way, key):
            listed += 1
            continue
        unlisted += 1
        user, operation, mode, times = key
        print(f"{way}: {operation}{' again' * (times - 1)} by {user} of {mode}: {own[key]}, on Linux {expected}")
    return listed, unlisted


def is_known(way, key):
    """Each of these is told in docs/known-limits.md."""
    user, operation, mode, _ = key
    is_member = "in the group" in user or user == "root"
    if "killpriv=kernel" in way:
        # Set-group-id without execution by the group, of which the kernel knows nothing there.
        return not int(mode[:4], 8) & 0o010 and not is_member
    if operation == "chown of nothing":
        return "writeback=off" in way or mode == "6777+cap"
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    parser.add_argument("--seed", type=int, default=0, help="the first cell (default: 0)")
    parser.add_argument("--way", choices=[way for way, _ in WAYS], help="one way of the mount alone")
    parser.add_argument("--share", type=int, default=1, help="every so manieth cell alone (default: 1)")
    arguments = parser.parse_args()
    if arguments.share < 1:
        parser.error("--share is at least 1")
    tool = shutil.which(arguments.vlinder)
    if not tool or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("table.py needs vlinder, root and /dev/fuse", file=sys.stderr)
        return 2
    table = cells()[arguments.seed % arguments.share :: arguments.share]
    linux = under(None, None, lambda point: outcomes(point, table))
    overlay = under(None, None, through_an_overlay)
    listed = unlisted = 0
    for way, options in WAYS:
        if arguments.way not in (None, way):
            continue
        own = under(tool, options, lambda point: outcomes(point, table))
        found = differences(way, linux, own)
        listed, unlisted = listed + found[0], unlisted + found[1]
        above = under(tool, options, through_an_overlay)
        if "killpriv=kernel" in options and above != overlay or not keeps_capabilities(overlay, above):
            unlisted += 1
            print(f"{way}: through an overlay {above}, on Linux {overlay}")
    print(json.dumps({"cells": len(table), "listed": listed, "others": unlisted,
                      "verdict": "fail" if unlisted else "pass"}))
    return 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
