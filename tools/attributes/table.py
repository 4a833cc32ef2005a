#!/usr/bin/env python3
"""Shows the attributes that a mount tells after each of many operations, beside those of Linux's own Btrfs.

Each operation changes a file through an open descriptor, or names in a directory. Another process looks at the
file and its directory at once, after a second, after the close, and after a remount. Sizes, blocks, modes,
owners and link counts are compared as they are, times by what became of them since before the operation. All
of it with the writeback cache and without, with room and on a nearly full file system.

Prints a line for each difference from Linux, and one with the counts. The exit status is 0 if there is no
difference but those of KNOWN, each of which docs/known-limits.md explains. Needs root, /dev/fuse, loop devices
and btrfs-progs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

sys.dont_write_bytecode = True

from operations import GIVEN, OPERATIONS, unmap  # noqa: E402  (it lies beside this file)

MOMENTS = ("at once", "after 1 s", "after close", "after remount")
CACHES = ("writeback=on", "writeback=off")
ROOMS = ("roomy", "nearly full")
IMAGE_BYTES = 512 << 20
# Less than what a mount keeps for its writers, so that each write asks for room.
LEFT_BYTES = 24 << 20
PAUSE_SECONDS = 0.03
OPEN = MOMENTS[:2]
MAPPED = {"mapped, with msync", "mapped, without msync"}


@dataclass(frozen=True)
class Known:
    """A difference that docs/known-limits.md explains."""

    why: str
    operations: frozenset
    attributes: frozenset
    moments: tuple = MOMENTS
    caches: tuple = CACHES

    def covers(self, name, moment, attribute, cache):
        is_here = moment in self.moments and cache in self.caches
        return is_here and name in self.operations and attribute in self.attributes


def known(why, operations, attributes, **where):
    return Known(why, frozenset(operations), frozenset(attributes), **where)


KNOWN = (
    known("the server sees no read from the kernel's cache", MAPPED | {"read"}, {"file.atime"}),
    known(
        "the kernel reads what a write changes a part of",
        # Of the last one seldom: seen in one run, where nothing else can have read the file.
        {"overwrite", "write vectors", "O_SYNC write", "sendfile", "chattr +S, then write", "write and fsync"}
        | {"times given, then write"},
        {"file.atime"},
        caches=CACHES[:1],
    ),
    known(
        "the kernel keeps the change time of an open file",
        {"chattr", "chattr +S"},
        {"file.ctime"},
        moments=OPEN,
        caches=CACHES[:1],
    ),
    known(
        "bytes that the kernel alone holds are not counted",
        {"append", "append twice", "write behind the end", "write and fsync"},
        {"file.blocks"},
        moments=MOMENTS[:1],
        caches=CACHES[:1],
    ),
    known(
        "an open file without blocks shows one sector",
        {"open with O_TRUNC"},
        {"file.blocks"},
        moments=OPEN,
        caches=CACHES[:1],
    ),
    known(
        "the kernel moves no times for mapped writes",
        {"mapped, without msync"},
        {"file.mtime", "file.ctime"},
        moments=OPEN,
        caches=CACHES[1:],
    ),
)

OBSERVER = """
import os, sys
for line in sys.stdin:
    try:
        shown = os.lstat(line.rstrip('\\n'))
        print(shown.st_mode, shown.st_nlink, shown.st_uid, shown.st_gid, shown.st_size, shown.st_blocks,
              shown.st_atime_ns, shown.st_mtime_ns, shown.st_ctime_ns, flush=True)
    except FileNotFoundError:
        print('none', flush=True)
"""
PLAIN = ("mode", "links", "user", "group", "size", "blocks")
TIMES = ("atime", "mtime", "ctime")


class Observer:
    """A process of its own that looks at files."""

    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", OBSERVER], stdin=pipe, stdout=pipe, text=True)

    def look(self, path):
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().strip()
        return None if said == "none" else [int(word) for word in said.split()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Mount:
    """A file system of one kind, which can be mounted again."""

    def __init__(self, scratch, tool, options):
        self.tool, self.options = tool, options
        self.image, self.point = os.path.join(scratch, "image"), os.path.join(scratch, "mount")
        os.makedirs(self.point, exist_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        run("mkfs.btrfs", "-q", "-f", self.image)

    def mount(self):
        if self.tool:
            run(self.tool, "mount", "-o", self.options, self.image, self.point)
        else:
            run("mount", "-o", "loop", self.image, self.point)

    def unmount(self):
        run(*([self.tool] if self.tool else []), "umount", self.point)

    def subvolume(self, verb, path):
        run(*([self.tool] if self.tool else ["btrfs"]), "subvolume", verb, path)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def fill(point):
    """Leaves little room."""
    path = os.path.join(point, "filler")
    filler = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(filler, bytes(1 << 20))
    except OSError:
        pass
    size = os.fstat(filler).st_size
    os.ftruncate(filler, max(0, size - LEFT_BYTES))
    os.fsync(filler)
    os.close(filler)


def became(before, after):
    """What an operation made of a time."""
    if after == GIVEN:
        return "given"
    return "same" if after == before else "later" if after > before else "earlier"


def told(before, after):
    """Attributes in words that do not depend on when the operation was done."""
    if after is None:
        return {"exists": False}
    words = dict(zip(PLAIN, after))
    if before is not None:
        for name, one, other in zip(TIMES, before[len(PLAIN) :], after[len(PLAIN) :]):
            words[name] = became(one, other)
    return words


def observed(mount, is_full):
    """What the mount tells: operation, moment, and attribute to its word."""
    table, places, handles = {}, {}, {}
    mount.mount()
    if is_full:
        fill(mount.point)
    for number, operation in enumerate(OPERATIONS):
        places[operation.name] = operation.prepare(os.path.join(mount.point, f"case{number}"))
    os.sync()
    observer = Observer()
    before = {name: [observer.look(path) for path in paths] for name, paths in places.items()}

    def note(moment, name):
        for kind, path, first in zip(("file", "directory"), places[name], before[name]):
            for attribute, word in told(first, observer.look(path)).items():
                table[name, moment, f"{kind}.{attribute}"] = word

    for operation in OPERATIONS:
        handles[operation.name] = operation.open()
        time.sleep(PAUSE_SECONDS)
        operation.change(handles[operation.name], mount)
        note(MOMENTS[0], operation.name)
    time.sleep(1)
    for name in places:
        note(MOMENTS[1], name)
    unmap()
    for handle in handles.values():
        os.close(handle)
    time.sleep(0.5)
    for name in places:
        note(MOMENTS[2], name)
    mount.unmount()
    mount.mount()
    for name in places:
        note(MOMENTS[3], name)
    observer.end()
    mount.unmount()
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", default="vlinder", help="the program")
    arguments = parser.parse_args()
    tools = (arguments.tool, "mkfs.btrfs", "mount", "umount")
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print(f"table.py needs root, /dev/fuse and {', '.join(missing or tools)}", file=sys.stderr)
        return 2
    scratch = tempfile.mkdtemp(prefix="attributes-")
    unknown = known_count = cells = 0
    seen = set()
    try:
        for room in ROOMS:
            is_full = room == "nearly full"
            linux = observed(Mount(scratch, None, ""), is_full)
            for cache in CACHES:
                own = observed(Mount(scratch, shutil.which(arguments.tool), cache), is_full)
                cells += len(OPERATIONS) * len(MOMENTS)
                for (name, moment, attribute), word in sorted(own.items()):
                    expected = linux.get((name, moment, attribute))
                    if word == expected:
                        continue
                    reasons = [one for one in KNOWN if one.covers(name, moment, attribute, cache)]
                    if reasons:
                        known_count += 1
                        seen.update(reasons)
                        continue
                    unknown += 1
                    print(f"{room}, {cache}: {name}, {moment}: {attribute} is {word}, on Linux {expected}")
    finally:
        subprocess.run(["umount", "-q", "-l", os.path.join(scratch, "mount")], check=False)
        shutil.rmtree(scratch)
    for one in set(KNOWN) - seen:
        print(f"no difference any more: {one.why}")
    print(f"{len(OPERATIONS)} operations, {cells} cells, {known_count} known differences, {unknown} others")
    return 1 if unknown or set(KNOWN) - seen else 0


if __name__ == "__main__":
    sys.exit(main())
