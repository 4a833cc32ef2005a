#!/usr/bin/env python3
"""Fills a file system until it is full and beyond, then empties it by vlinder and a copy of it by Linux.

Prints one line of JSON. The exit status is 0 if nothing was violated, 1 if something was, 2 for wrong
arguments or where something needed is missing. The rules are told in full_disk/ending.py. Needs root,
/dev/fuse and btrfs-progs.

With --linux the same workload runs on Linux's own file system instead, and nothing is judged: the line tells
what Linux stored, what it refused, and whether it aborted.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

# The module lies beside this file, and nothing is to be written there.
from full_disk import ending, manifest, one_process, stress, workloads  # noqa: E402
from full_disk.systems import Linux, Vlinder, call  # noqa: E402

MEMORY_DIRECTORY = "/dev/shm"
# Four copies of the largest image of the long runs.
MEMORY_BYTES = 5 << 30
WORKLOADS = {
    "fill": workloads.fill,
    "one-process": one_process.one_process,
    "remove-then-snapshot": workloads.remove_then_snapshot,
    "snapshot-then-fill": workloads.snapshot_then_fill,
    "scatter": workloads.scatter,
    "stress": stress.stress,
    "image": None,
}


class Run:
    """One run: its scratch directory, its mounts, and what was found."""

    def __init__(self, arguments):
        self.arguments, self.options = arguments, arguments.opts
        self.vlinder = shutil.which(arguments.vlinder)
        self.scratch = tempfile.mkdtemp(prefix="vlinder-full-", dir=arguments.dir)
        self.violations, self.report, self.mounts = [], {}, []
        self.manifest, self.is_snapshot_refused = manifest.Manifest(), False
        self.random = random.Random(arguments.seed)
        self.watchdog = threading.Timer(arguments.limit, self.end_hang)
        self.watchdog.daemon = True
        self.watchdog.start()

    def path(self, name):
        return os.path.join(self.scratch, name)

    def adopt(self, mount):
        """Has the mount cleared away at the end."""
        self.mounts.append(mount)
        return mount

    def end_hang(self):
        """The servers are killed, so that every request that hangs ends with an error."""
        self.violations.append(f"no end after {self.arguments.limit:g} s")
        for mount in self.mounts:
            mount.abort()

    def fill(self, image):
        """Makes the image and has the workload fill it. Gives the mount."""
        arguments = self.arguments
        maker = [self.vlinder, "--quiet", "mkfs"]
        if arguments.linux:
            maker = ["mkfs.btrfs", "--quiet"]
            # That program wants a file that is there, and as large.
            call("truncate", "-s", arguments.size, image)
        made = call(*maker, *arguments.mkfs.split(), "-b", arguments.size, image)
        if made.failed():
            raise RuntimeError(f"mkfs: {made.text}")
        point = self.path("mount")
        mount = self.adopt(Linux(image, point, self.options) if arguments.linux
                           else Vlinder(self.vlinder, image, point, self.options))
        mount.open()
        workload = {}
        try:
            workload = WORKLOADS[arguments.workload](self, mount)
        except (OSError, RuntimeError) as error:
            self.violations.append(f"workload: {type(error).__name__}: {error}")
        self.report["workload"] = workload
        if workload and not workload["refused"]:
            self.violations.append("the disk never became full: nothing was refused")
        return mount

    def work(self):
        image = self.path("image.img")
        if self.arguments.workload == "image":
            workloads.unpack(self.arguments.image, image)
            ending.Judge(self, image).judge(None)
            return
        mount = self.fill(image)
        if self.arguments.linux:
            ending.judge_linux_alone(self, mount)
            # Nothing is judged here: what Linux could not do is told.
            self.report["linux_found"], self.violations = self.violations, []
        else:
            ending.Judge(self, image).judge(mount)

    def left_by_linux_alone(self):
        """How many names Linux leaves of the same workload on its own file system; none where that can't be told."""
        if self.arguments.workload == "image":
            return None
        # Its limit is its own.
        self.watchdog.cancel()
        done = call(sys.executable, *sys.argv, "--linux", seconds=2 * self.arguments.limit)
        results = [line for line in done.text.splitlines() if line.startswith("{")]
        try:
            return json.loads(results[-1])["linux"]["left"]
        except (IndexError, KeyError, ValueError):
            self.violations.append(f"the workload on Linux alone: {done.short()}")
            return None

    def keep(self):
        """Keeps the images and the logs of a run that failed."""
        target = os.path.join(self.arguments.keep, os.path.basename(self.scratch))
        os.makedirs(target, exist_ok=True)
        for entry in os.listdir(self.scratch):
            if entry.endswith((".img", ".log")):
                call("cp", "--sparse=always", self.path(entry), target)

    def close(self):
        self.watchdog.cancel()
        for mount in reversed(self.mounts):
            mount.drop()
        shutil.rmtree(self.scratch, ignore_errors=True)


def default_directory():
    """In memory, if there is room."""
    if os.path.isdir(MEMORY_DIRECTORY) and shutil.disk_usage(MEMORY_DIRECTORY).free >= MEMORY_BYTES:
        return MEMORY_DIRECTORY
    return "/var/tmp"


def common_arguments():
    """Arguments of every workload."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    directory = default_directory()
    common.add_argument("--dir", default=directory, help="for images and mounts (default: %(default)s)")
    common.add_argument("--seed", type=int, default=1, help="of all that is random (default: %(default)s)")
    common.add_argument("--opts", default="", help="mount options, joined by commas")
    common.add_argument("--keep", help="where to keep the images (the full one, too) and logs of a run that "
                        "failed")
    common.add_argument("--empty", choices=ending.WAYS, default=ending.BOTH,
                        help="the mounts that are emptied: the running one, a new one (default: %(default)s)")
    common.add_argument("--limit", type=float, default=2400, help="seconds until a run counts as hanging")
    return common


def parser():
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="workload", required=True, metavar="WORKLOAD")
    common, added = common_arguments(), {}
    for name, function in WORKLOADS.items():
        about = function.__doc__ if function else "An image that is full already."
        added[name] = commands.add_parser(name, help=about, description=about, parents=[common])
        if function:
            added[name].add_argument("--size", default="200M", help="of the image (default: %(default)s)")
            about = "run it on Linux, and judge nothing"
            added[name].add_argument("--linux", action="store_true", help=about)
            added[name].add_argument("--mkfs", default="", help="more arguments of mkfs, in one word")

    def number(workload, name, default, about, kind=int):
        help_text = f"{about} (default: {default})"
        added[workload].add_argument(name, type=kind, default=default, help=help_text)

    number("fill", "--bytes", 1800, "size of each file")
    number("one-process", "--refusals", 30_000, "ends after so many refusals")
    number("remove-then-snapshot", "--bytes", 600, "size of each small file")
    number("remove-then-snapshot", "--remove", 500, "small files that are removed again")
    number("remove-then-snapshot", "--extents", 28_671, "scattered extents")
    number("snapshot-then-fill", "--half", 8000, "small files before the snapshot")
    number("snapshot-then-fill", "--extents", 0, "scattered extents")
    number("scatter", "--extents", 90_000, "scattered extents")
    number("scatter", "--leave", 0, "small files that are removed again")
    number("scatter", "--touch", 30, "overwrites in each of twenty rounds")
    number("stress", "--seconds", 60, "of changes", float)
    number("stress", "--renew", 5, "seconds between snapshots, 0 for none", float)
    number("stress", "--processes", 4, "that make changes")
    added["stress"].add_argument("--profile", choices=stress.PROFILES, default="all", help="kinds of changes")
    added["image"].add_argument("--image", required=True, help="the image; one that ends in .zst is unpacked")
    return top


def require(arguments):
    """Ends the program where something needed is missing."""
    tools = (arguments.vlinder, "btrfs", "mkfs.btrfs", "mount", "losetup")
    missing = [tool for tool in tools if not shutil.which(tool)]
    if os.geteuid() != 0:
        missing.append("root")
    if not os.path.exists("/dev/fuse"):
        missing.append("/dev/fuse")
    if arguments.workload == "image" and not os.path.exists(arguments.image):
        missing.append(arguments.image)
    if not os.path.isdir(arguments.dir):
        missing.append(f"the directory {arguments.dir} (--dir)")
    if missing:
        print(f"run.py needs {', '.join(missing)}", file=sys.stderr)
        sys.exit(2)


def raise_exit(number, _frame):
    sys.exit(128 + number)


def main():
    arguments = parser().parse_args()
    require(arguments)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, raise_exit)
    run, started = Run(arguments), time.monotonic()
    try:
        try:
            run.work()
        except (OSError, RuntimeError) as error:
            run.violations.append(f"{type(error).__name__}: {error}")
        if run.violations and arguments.keep:
            run.keep()
    finally:
        run.close()
    is_linux = getattr(arguments, "linux", False)
    hidden = ("vlinder", "linux", "dir", "keep", "limit", "workload")
    parameters = {name: value for name, value in vars(arguments).items() if name not in hidden}
    print(json.dumps({
        "name": arguments.workload, "system": "linux" if is_linux else "vlinder", "parameters": parameters,
        **run.report,
        "seconds": round(time.monotonic() - started, 1), "violations": run.violations,
        "verdict": "fail" if run.violations else "pass"}), flush=True)
    return 1 if run.violations else 0


if __name__ == "__main__":
    sys.exit(main())
