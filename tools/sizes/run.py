#!/usr/bin/env python3
"""Measures images that `vlinder mkfs --rootdir --shrink` makes of a large tree, beside mkfs.erofs -zlz4hc.

The tree is a copy of /usr/include, /usr/lib/gcc, /usr/lib/python3, /usr/share/doc and /usr/share/perl, as far as
they are there, or of the directories given with --tree. Each image is mounted by Linux, compared file by file,
written to (a file is deleted) and checked by btrfs check. Prints each size and ratio, and one line of JSON with the
verdict last: "fail" where an image differs or is refused, or where the compressed one is longer than --limit times
that of mkfs.erofs. The exit status is 0, 1, or 2 where something needed is missing. Needs root, loop devices, Linux's
btrfs, btrfs and mkfs.erofs (Debian: erofs-utils). --seed is taken and not used.
"""

import argparse
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time

TREES = ["/usr/include", "/usr/lib/gcc", "/usr/lib/python3", "/usr/share/doc", "/usr/share/perl"]
# block-group-tree is left out, since older btrfs-progs can't check it.
FORMAT = ["-O", "^block-group-tree"]
KINDS = [
    ("zstd, single", ["--compress", "zstd", "-m", "single"]),
    ("zstd, single, dedupe", ["--compress", "zstd", "-m", "single", "--dedupe"]),
    ("zstd, dup", ["--compress", "zstd"]),
    ("plain, single", ["-m", "single"]),
]


def call(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def facts(root):
    """What is compared of each file, by path."""
    found = {}
    numbers = {}
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            what = [stat.S_IFMT(status.st_mode), status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_mtime_ns]
            if stat.S_ISLNK(status.st_mode):
                what.append(os.readlink(path))
            elif stat.S_ISREG(status.st_mode):
                # Names of one inode have the same first path.
                first = numbers.setdefault((status.st_dev, status.st_ino), os.path.relpath(path, root))
                what += [status.st_size, status.st_nlink, first]
            found[os.path.relpath(path, root)] = what
    return found


def same_bytes(left, right):
    with open(left, "rb") as one, open(right, "rb") as other:
        while True:
            bytes_of_one, bytes_of_other = one.read(1 << 20), other.read(1 << 20)
            if bytes_of_one != bytes_of_other:
                return False
            if not bytes_of_one:
                return True


def judge(image, tree, work):
    """What Linux finds wrong with an image of the tree."""
    mountpoint = os.path.join(work, "mount")
    os.makedirs(mountpoint, exist_ok=True)
    call("btrfs", "check", "--check-data-csum", image)
    # Linux finds no room for access times, and commits for each that it can't store: so the comparison is read-only.
    call("mount", "-t", "btrfs", "-o", "loop,ro", image, mountpoint)
    try:
        expected, found = facts(tree), facts(mountpoint)
        wrong = sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))
        regular = [path for path, what in expected.items() if what[0] == stat.S_IFREG and path in found]
        wrong += [path for path in regular if not same_bytes(os.path.join(tree, path), os.path.join(mountpoint, path))]
    finally:
        call("umount", mountpoint)
    call("mount", "-t", "btrfs", "-o", "loop,noatime", image, mountpoint)
    try:
        os.remove(os.path.join(mountpoint, max(regular, key=lambda path: expected[path][5])))
        call("sync", "-f", mountpoint)
    finally:
        call("umount", mountpoint)
    call("btrfs", "check", "--check-data-csum", image)
    return wrong


def run(arguments):
    work = tempfile.mkdtemp(prefix="vlinder-image-sizes-")
    try:
        tree, image = os.path.join(work, "tree"), os.path.join(work, "image")
        for source in arguments.tree or [source for source in TREES if os.path.isdir(source)]:
            target = os.path.join(tree, os.path.abspath(source).lstrip("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            call("cp", "-a", source, target)
        began = time.monotonic()
        call("mkfs.erofs", "-zlz4hc", os.path.join(work, "erofs"), tree)
        erofs = os.path.getsize(os.path.join(work, "erofs"))
        print(f"mkfs.erofs -zlz4hc: {erofs:,} bytes, {time.monotonic() - began:.1f} s")
        result = {"erofs_bytes": erofs, "images": {}, "wrong": []}
        for name, options in KINDS:
            if os.path.exists(image):
                os.remove(image)
            began = time.monotonic()
            call(arguments.vlinder, "mkfs", "-q", "--shrink", *FORMAT, *options, "--rootdir", tree, image)
            took, size = time.monotonic() - began, os.path.getsize(image)
            print(f"vlinder, {name}: {size:,} bytes, {size / erofs:.3f} of mkfs.erofs, {took:.1f} s", flush=True)
            result["images"][name] = {"bytes": size, "ratio": round(size / erofs, 3)}
            result["wrong"] += [f"{name}: {path}" for path in judge(image, tree, work)][:10]
        too_long = result["images"][KINDS[0][0]]["ratio"] > arguments.limit
        result["verdict"] = "fail" if too_long or result["wrong"] else "pass"
        return result
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vlinder", default="vlinder", help="the program")
    parser.add_argument("--seed", type=int, default=1, help="not used")
    parser.add_argument("--tree", action="append", help="a directory to copy; may be given more than once")
    parser.add_argument("--limit", type=float, default=0.95, help="the longest image, as a part of mkfs.erofs's")
    arguments = parser.parse_args()
    missing = [name for name in ("mkfs.erofs", "btrfs", "losetup") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        lacking = ", ".join(missing) or "root"
        print(f"sizes: {lacking} is missing (as root: apt-get install erofs-utils btrfs-progs)", file=sys.stderr)
        return 2
    try:
        result = run(arguments)
    except subprocess.CalledProcessError as error:
        result = {"verdict": "fail", "command": error.cmd, "output": (error.stdout or "") + (error.stderr or "")}
    print(json.dumps(result))
    return 0 if result["verdict"] == "pass" else 1


if __name__ == "__main__":
    sys.exit(main())
