#!/usr/bin/env python3
"""How long fsync, ls and mkdir take beside a bulk write, on a mount of vlinder and on one of Linux.

For each load (none, dd through the cache, with oflag=direct, with oflag=dsync) three operations are timed by turns: a
file that is made, gets 100 bytes and is synced; a directory of 100 names that is listed; a directory that is
made. The image lies on the same disk for both; rounds alternate between the two. Prints a table of medians in
milliseconds with their ratio, and the load's speed. Needs root, /dev/fuse and btrfs-progs.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LOADS = {"idle": None, "buffered": [], "direct": ["oflag=direct"], "dsync": ["oflag=dsync"]}
OPERATIONS = ("fsync", "ls", "mkdir")
NAMES = 100
BULK_MEBIBYTES = 512


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Mount:
    """One file system, and a load on it."""

    def __init__(self, name, scratch, tool):
        self.name, self.tool = name, tool
        self.image, self.point = f"{scratch}/{name}.img", f"{scratch}/{name}"
        os.mkdir(self.point)
        with open(self.image, "wb") as file:
            file.truncate(6 << 30)
        run("mkfs.btrfs", "-q", self.image)
        if name == "vlinder":
            run(tool, "mount", self.image, self.point)
        else:
            run("mount", "-o", "loop", self.image, self.point)
        os.mkdir(f"{self.point}/listed")
        for number in range(NAMES):
            open(f"{self.point}/listed/{number}", "w").close()
        self.count, self.bulk = 0, None

    def start(self, flags):
        """A shell that writes one file after the other, each of half a gigabyte, until it is killed."""
        if flags is None:
            return
        words = " ".join(flags)
        script = f"while :; do dd if=/dev/zero of={self.point}/bulk bs=1M count={BULK_MEBIBYTES} {words} 2>&1 | tail -n 1; done"
        self.bulk = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
        time.sleep(.5)

    def stop(self):
        """Ends the load; the mebibytes a second of the files that were written whole."""
        if self.bulk is None:
            return None
        os.killpg(self.bulk.pid, signal.SIGKILL)
        said, _ = self.bulk.communicate()
        self.bulk = None
        speeds = [float(line.split()[-2]) * (1024 if line.split()[-1] == "GB/s" else 1)
                  for line in said.splitlines() if line.endswith("B/s")]
        run("sync", "-f", self.point) if self.name == "linux" else run(self.tool, "filesystem", "sync", self.point)
        return statistics.median(speeds) if speeds else None

    def fsync(self):
        self.count += 1
        file = os.open(f"{self.point}/small{self.count % 50}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(file, b"x" * 100)
        os.fsync(file)
        os.close(file)

    def ls(self):
        if len(os.listdir(f"{self.point}/listed")) != NAMES:
            sys.exit(f"{self.name}: names are missing")

    def mkdir(self):
        self.count += 1
        os.mkdir(f"{self.point}/made{self.count}")

    def time(self, seconds):
        taken = {operation: [] for operation in OPERATIONS}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for operation in OPERATIONS:
                before = time.monotonic()
                getattr(self, operation)()
                taken[operation].append((time.monotonic() - before) * 1000)
            time.sleep(.01)
        return taken

    def end(self):
        command = ["umount", self.point] if self.name == "linux" else [self.tool, "umount", self.point]
        # A load that was killed may still be at its end.
        for _ in range(50):
            if subprocess.run(command, capture_output=True).returncode == 0:
                return
            time.sleep(.2)
        run(*command)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    parser.add_argument("--seconds", type=float, default=5, help="of each round (default: 5)")
    parser.add_argument("--rounds", type=int, default=5, help="of each load on each mount (default: 5)")
    parser.add_argument("--most", type=float, default=3, help="times Linux's median that is too much (default: 3)")
    parser.add_argument("--load", action="append", choices=LOADS, help="only these loads")
    parser.add_argument("--dir", default="/var/tmp", help="where the images lie (default: /var/tmp)")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or not arguments.seconds > 0:
        parser.error("--rounds is at least 1, and --seconds more than 0")
    if not os.path.isdir(arguments.dir):
        parser.error(f"--dir {arguments.dir} is no directory")
    tool = shutil.which(arguments.vlinder)
    if not tool or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("run.py needs vlinder, root and /dev/fuse", file=sys.stderr)
        return 2
    too_slow = False
    with tempfile.TemporaryDirectory(prefix="vlinder-latency-", dir=arguments.dir) as scratch:
        mounts = [Mount(name, scratch, os.path.abspath(tool)) for name in ("vlinder", "linux")]
        print(f"{'load':9} {'operation':9} {'vlinder':>9} {'linux':>9} {'ratio':>6} {'worst':>9} {'worst':>9}")
        for load in arguments.load or LOADS:
            taken = {mount.name: {operation: [] for operation in OPERATIONS} for mount in mounts}
            speeds = {mount.name: [] for mount in mounts}
            for _ in range(arguments.rounds):
                for mount in mounts:
                    mount.start(LOADS[load])
                    for operation, times in mount.time(arguments.seconds).items():
                        taken[mount.name][operation] += times
                    speeds[mount.name].append(mount.stop())
            for operation in OPERATIONS:
                ours, theirs = (taken[mount.name][operation] for mount in mounts)
                median, other = statistics.median(ours), statistics.median(theirs)
                too_slow |= median > other * arguments.most
                print(f"{load:9} {operation:9} {median:9.2f} {other:9.2f} {median / other:6.2f} "
                      f"{max(ours):9.1f} {max(theirs):9.1f}", flush=True)
            known = {name: [speed for speed in found if speed] for name, found in speeds.items()}
            if all(known.values()):
                ours, theirs = (statistics.median(found) for found in known.values())
                print(f"{load:9} MB/s      {ours:9.0f} {theirs:9.0f} {ours / theirs:6.2f}", flush=True)
        for mount in mounts:
            mount.end()
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
