#!/usr/bin/env python3
"""Deletes all snapshots of a large tree while a client works beside, on Linux and on vlinder, from the same image.

Linux makes the image: a tree of files, and snapshots with a few files changed between each two; with --full, files
until nothing fits any more. Copies of it are mounted by each of the two; all snapshots are deleted at once, and a
client makes, reads, syncs, renames and removes files until the last tree is gone. Shown for both: how long the
deletion took, the longest commit, and a histogram of each operation. Both checkers must find each image clean
afterwards, and both must have as many bytes in use. Linux may refuse to delete snapshots of a full file system, or
never end; vlinder may not. Prints one line of JSON last. Needs root, /dev/fuse and btrfs-progs.
"""

import argparse
import collections
import errno
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DIRECTORIES = 400
CLIENT_PAUSE_SECONDS = .002
# Both checkers judge what each counts; leaves that the two filled differently make them differ from each other.
MAX_USED_DIFFERENCE_BYTES = 1 << 20
# A stall below this many seconds is none, whatever Linux's longest is. On a full file system an operation of vlinder
# goes on for ten seconds as long as deleted subvolumes give back room, where Linux refuses at once.
MAX_STALL_SECONDS = 10
MAX_STALL_SECONDS_FULL = 20
REST_BYTES = 4096


class Failed(Exception):
    """What must not be."""


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        raise Failed(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def name_of(number):
    return f"d{number % DIRECTORIES}/f{number}"


def make_image(image, point, arguments, random_source):
    """The tree, its snapshots, and what fills the rest."""
    with open(image, "wb") as file:
        file.truncate(arguments.size << 20)
    run("mkfs.btrfs", "-q", image)
    run("mount", "-o", "loop,commit=300", image, point)
    try:
        os.mkdir(f"{point}/snapshots")
        # Where the client works: nothing can be made later in a file system that is full.
        os.mkdir(f"{point}/client")
        run("btrfs", "subvolume", "create", f"{point}/tree")
        for number in range(DIRECTORIES):
            os.mkdir(f"{point}/tree/d{number}")
        for number in range(arguments.files):
            with open(f"{point}/tree/{name_of(number)}", "wb") as file:
                file.write(random_source.randbytes(random_source.choice((0, 40, 300, 1200, 2000, 3000))))
        for number in range(arguments.snapshots):
            for _ in range(arguments.changes):
                path = f"{point}/tree/{name_of(random_source.randrange(arguments.files))}"
                with open(path, "r+b") as file:
                    file.write(random_source.randbytes(random_source.choice((40, 2000, 5000))))
            run("btrfs", "subvolume", "snapshot", "-r", f"{point}/tree", f"{point}/snapshots/{number}")
        if arguments.full:
            fill(point)
    finally:
        run("umount", point)


def fill(point):
    """Files of falling sizes until not even an empty one fits."""
    number = 0
    for size in (64 << 20, 1 << 20, 64 << 10, 2000, 0):
        while True:
            try:
                with open(f"{point}/rest{number}", "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, size) if size > REST_BYTES else file.write(b"r" * size)
                    file.flush()
                number += 1
                if size <= REST_BYTES and number % 256 == 0:
                    os.sync()
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
            if size == 0 and number > 400_000:
                break
    os.sync()


class Histogram:
    """Times of one operation, by powers of two of microseconds."""

    def __init__(self):
        self.buckets, self.longest, self.count = collections.Counter(), 0.0, 0

    def take(self, seconds):
        self.buckets[max(0, int(seconds * 1e6).bit_length())] += 1
        self.longest, self.count = max(self.longest, seconds), self.count + 1

    def record(self):
        return {"count": self.count, "longest_ms": round(self.longest * 1000, 2),
                "below_us": {str(1 << bucket): count for bucket, count in sorted(self.buckets.items())}}


class Client:
    """Works in a directory of its own, and reads in the tree; a refusal for room is counted, and nothing else."""

    def __init__(self, point, files, seed):
        self.point, self.files, self.random = point, files, random.Random(seed)
        self.histograms = collections.defaultdict(Histogram)
        self.made, self.next, self.refused = [], 0, 0
        self.home = f"{point}/client"

    def work(self, has_ended):
        operations = (self.make, self.make, self.sync, self.look, self.read, self.rename, self.remove)
        while not has_ended():
            for operation in operations:
                self.timed(operation.__name__, operation)
                time.sleep(CLIENT_PAUSE_SECONDS)
        shutil.rmtree(self.home, ignore_errors=True)

    def timed(self, name, operation):
        before = time.monotonic()
        try:
            operation()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise Failed(f"{name}: {error}") from error
            self.refused += 1
        self.histograms[name].take(time.monotonic() - before)

    def make(self):
        self.next += 1
        with open(f"{self.home}/{self.next}", "wb", buffering=0) as file:
            self.made.append(self.next)
            file.write(b"c" * self.random.choice((100, 4096, 20000)))

    def sync(self):
        if self.made:
            file = os.open(f"{self.home}/{self.made[-1]}", os.O_WRONLY)
            try:
                os.write(file, b"s" * 100)
                os.fsync(file)
            finally:
                os.close(file)

    def look(self):
        os.stat(f"{self.point}/tree/{name_of(self.random.randrange(self.files))}")

    def read(self):
        with open(f"{self.point}/tree/{name_of(self.random.randrange(self.files))}", "rb") as file:
            file.read()

    def rename(self):
        if self.made:
            os.rename(f"{self.home}/{self.made[-1]}", f"{self.home}/{self.made[-1]}r")
            os.rename(f"{self.home}/{self.made[-1]}r", f"{self.home}/{self.made[-1]}")

    def remove(self):
        while len(self.made) > 50:
            os.unlink(f"{self.home}/{self.made.pop(0)}")


def client_process(point, files, seed):
    """A client of its own, which says what it saw when it is told to end by SIGTERM."""
    source, sink = os.pipe()
    child = os.fork()
    if child:
        os.close(sink)
        return child, source
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    client = Client(point, files, seed)
    said = {}
    try:
        client.work(lambda: bool(ended))
    except Exception as error:  # told to the parent, which fails
        said["failed"] = str(error)
    said["operations"] = {name: histogram.record() for name, histogram in client.histograms.items()}
    said["refused"] = client.refused
    with os.fdopen(sink, "w") as file:
        json.dump(said, file)
    os._exit(0)


class Linux:
    name = "linux"
    # Seen: "Could not destroy subvolume/snapshot: No space left on device".
    may_refuse = True

    def __init__(self, image, point, _):
        self.image, self.point = image, point

    def mount(self):
        run("mount", "-o", "loop", self.image, self.point)
        self.uuid = run("findmnt", "-no", "UUID", self.point).strip()

    def command(self):
        return ["btrfs"]

    def commits(self):
        with open(f"/sys/fs/btrfs/{self.uuid}/commit_stats") as file:
            stats = dict(line.split() for line in file)
        return int(stats["commits"]), float(stats["max_commit_ms"])

    def memory_peak_bytes(self):
        return None

    def end(self):
        run("umount", self.point)


class Vlinder:
    name = "vlinder"
    may_refuse = False

    def __init__(self, image, point, tool):
        self.image, self.point, self.tool = image, point, tool

    def mount(self):
        run(self.tool, "mount", self.image, self.point)
        said = subprocess.run(["pgrep", "-f", self.image], capture_output=True, text=True)
        self.server = said.stdout.split()[0] if said.stdout else None

    def command(self):
        return [self.tool]

    def metrics(self):
        return json.loads(run(self.tool, "stats", "--json", self.point))["metrics"]

    def commits(self):
        taken = self.metrics()["transaction.commit_time_ns"]["value"]
        return taken["count"], taken["maximum"] / 1e6

    def memory_peak_bytes(self):
        try:
            with open(f"/proc/{self.server}/status") as file:
                return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
        except (OSError, StopIteration):
            return None

    def end(self):
        run(self.tool, "umount", self.point)


def used_bytes(image):
    said = run("btrfs", "inspect-internal", "dump-super", image)
    return next(int(line.split()[1]) for line in said.splitlines() if line.startswith("bytes_used"))


def ask_for_deletion(side):
    """Asks for the deletion of all snapshots; how many are there afterwards."""
    snapshots = sorted(glob.glob(f"{side.point}/snapshots/*"))
    for first in range(0, len(snapshots), 250):
        command = [*side.command(), "subvolume", "delete", *snapshots[first:first + 250]]
        subprocess.run(command, capture_output=True)
    return len(glob.glob(f"{side.point}/snapshots/*"))


def remove_rest(side):
    for path in glob.glob(f"{side.point}/rest*"):
        os.unlink(path)
    run(*side.command(), "filesystem", "sync", side.point)


def delete_all(side, arguments):
    """Mounts one copy, deletes all snapshots beside a client, and tells what was seen."""
    side.mount()
    child, stuck = None, False
    try:
        child, source = client_process(side.point, arguments.files, arguments.seed)
        time.sleep(1)
        begun = time.monotonic()
        refused = ask_for_deletion(side)
        if refused and not side.may_refuse:
            raise Failed(f"{side.name} refused to delete {refused} snapshots of a full file system")
        if refused:
            remove_rest(side)
            if ask_for_deletion(side):
                raise Failed(f"{side.name} refuses to delete snapshots with room")
        asked = time.monotonic() - begun
        try:
            run(*side.command(), "subvolume", "sync", side.point, timeout=arguments.patience)
        except subprocess.TimeoutExpired:
            if not side.may_refuse:
                raise Failed(f"{side.name} did not end deleting in {arguments.patience} s") from None
            stuck = True
            remove_rest(side)
            run(*side.command(), "subvolume", "sync", side.point)
        took = time.monotonic() - begun
        os.kill(child, signal.SIGTERM)
        with os.fdopen(source) as file:
            said = json.load(file)
        os.waitpid(child, 0)
        child = None
        if "failed" in said:
            raise Failed(f"{side.name}: the client: {said['failed']}")
        if arguments.full:
            remove_rest(side)
            with open(f"{side.point}/fits", "wb") as file:
                file.write(b"f" * (8 << 20))
                os.fsync(file.fileno())
            os.unlink(f"{side.point}/fits")
        os.sync()
        run(*side.command(), "filesystem", "sync", side.point)
        count, longest = side.commits()
        said.update(refused_deletions=refused, stuck=stuck, asked_seconds=round(asked, 2), seconds=round(took, 2), commits=count,
                    longest_commit_ms=round(longest, 1), memory_peak_bytes=side.memory_peak_bytes())
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        side.end()
    return said


def judge(side, tool, said):
    run("btrfs", "check", "--readonly", side.image)
    run(tool, "check", side.image)
    said["bytes_used"] = used_bytes(side.image)
    longest = max(histogram["longest_ms"] for histogram in said["operations"].values())
    said["longest_stall_ms"] = longest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=200_000, help="files of the tree (default: 200,000)")
    parser.add_argument("--snapshots", type=int, default=1000, help="(default: 1,000)")
    parser.add_argument("--changes", type=int, default=20, help="files changed before each snapshot (default: 20)")
    parser.add_argument("--size", type=int, default=6144, help="of the image, in MiB (default: 6,144)")
    parser.add_argument("--full", action="store_true", help="fill the file system before the snapshots go")
    parser.add_argument("--patience", type=int, default=600,
                        help="seconds that the deletion may take; Linux gets room then (default: 600)")
    parser.add_argument("--dir", help="where the images lie (default: TMPDIR)")
    arguments = parser.parse_args()
    tool = shutil.which(arguments.vlinder)
    if not tool or os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not shutil.which("mkfs.btrfs"):
        print(json.dumps({"verdict": "skip", "reason": "needs vlinder, root, /dev/fuse and btrfs-progs"}))
        return 2
    tool = os.path.abspath(tool)
    # A caller that ends this program early finds no mount left: the way out runs all "finally".
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    verdict = {"verdict": "pass", "files": arguments.files, "snapshots": arguments.snapshots, "full": arguments.full}
    with tempfile.TemporaryDirectory(prefix="vlinder-snapshots-", dir=arguments.dir) as scratch:
        point = f"{scratch}/mount"
        os.mkdir(point)
        try:
            begun = time.monotonic()
            make_image(f"{scratch}/linux.img", point, arguments, random.Random(arguments.seed))
            run("cp", "--sparse=always", f"{scratch}/linux.img", f"{scratch}/vlinder.img")
            print(f"made in {time.monotonic() - begun:.0f} s", flush=True)
            for kind in (Linux, Vlinder):
                side = kind(f"{scratch}/{kind.name}.img", point, tool)
                said = delete_all(side, arguments)
                judge(side, tool, said)
                verdict[kind.name] = said
                show(kind.name, said)
            difference = abs(verdict["linux"]["bytes_used"] - verdict["vlinder"]["bytes_used"])
            verdict["used_difference_bytes"] = difference
            if difference > MAX_USED_DIFFERENCE_BYTES:
                raise Failed(f"what is in use differs by {difference} bytes")
            floor = MAX_STALL_SECONDS_FULL if arguments.full else MAX_STALL_SECONDS
            limit = max(floor * 1000, 2 * verdict["linux"]["longest_stall_ms"])
            if verdict["vlinder"]["longest_stall_ms"] > limit:
                raise Failed(f"an operation took {verdict['vlinder']['longest_stall_ms']} ms")
        except Failed as failure:
            verdict.update(verdict="fail", reason=str(failure))
    print(json.dumps(verdict))
    return 0 if verdict["verdict"] == "pass" else 1


def show(name, said):
    print(f"{name}: deleted in {said['seconds']} s (asked for in {said['asked_seconds']} s); {said['commits']} commits, "
          f"the longest {said['longest_commit_ms']} ms; refused {said['refused']} of the client, "
          f"{said['refused_deletions']} deletions{', did not end by itself' if said['stuck'] else ''}; in use {said['bytes_used']}; "
          f"memory {said['memory_peak_bytes']}")
    for operation, histogram in sorted(said["operations"].items()):
        buckets = " ".join(f"<{bound}:{count}" for bound, count in histogram["below_us"].items())
        print(f"  {operation:7} {histogram['count']:7} longest {histogram['longest_ms']:9.2f} ms; µs {buckets}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
