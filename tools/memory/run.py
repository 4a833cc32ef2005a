#!/usr/bin/env python3
"""Has a server, its clients and the image's pages share one small memory group, then has the server killed for memory.

Writers append, overwrite and write through mappings, each sync what they wrote and say so. None may stand still.
When the time is over, a process of the group takes memory until the kernel kills the server. Then both checkers
must find the image clean, and all that was synced must be there. Prints one line of JSON. Needs root, /dev/fuse,
a memory controller (version 1 or 2), btrfs-progs, and a directory that is not in memory.
"""

import argparse
import json
import mmap
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

BLOCK = 4096
# Number of the writer, place, turn and checksum at the start of each block; the rest is drawn from these.
HEADER = struct.Struct("<IIQI")
SAID = struct.Struct("<IIQ")
LEAST_MEBIBYTES = 64
STANDSTILL_SECONDS = 60


class Failed(Exception):
    """What must not be."""


class Group:
    """A memory group, of whichever version there is."""

    def __init__(self, mebibytes):
        name = f"vlinder-memory-{os.getpid()}"
        if os.path.exists("/sys/fs/cgroup/memory/tasks"):
            self.path, limit, self.events = f"/sys/fs/cgroup/memory/{name}", "memory.limit_in_bytes", "memory.oom_control"
        else:
            with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as file:
                file.write("+memory")
            self.path, limit, self.events = f"/sys/fs/cgroup/{name}", "memory.max", "memory.events"
        os.mkdir(self.path)
        self.write(limit, mebibytes << 20)
        for swap in ("memory.swap.max", "memory.swappiness"):
            if os.path.exists(f"{self.path}/{swap}"):
                self.write(swap, 0)

    def write(self, name, value):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def kills(self):
        with open(f"{self.path}/{self.events}") as file:
            return sum(int(line.split()[1]) for line in file if line.split()[0] == "oom_kill")

    def peak(self):
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if os.path.exists(f"{self.path}/{name}"):
                with open(f"{self.path}/{name}") as file:
                    return int(file.read())
        return None

    def remove(self):
        for _ in range(100):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(.1)


def block_of(writer, place, turn):
    """The bytes of a place as a writer wrote them in a turn."""
    seed = zlib.crc32(struct.pack("<IIQ", writer, place, turn))
    body = random.Random(seed).randbytes(64) * ((BLOCK - HEADER.size) // 64 + 1)
    body = body[: BLOCK - HEADER.size]
    return HEADER.pack(writer, place, turn, zlib.crc32(body)) + body


def turn_in(data, writer, place):
    """The turn that a block says it is of; -1 where nobody wrote it."""
    if data == bytes(BLOCK):
        return -1
    found_writer, found_place, turn, _ = HEADER.unpack(data[: HEADER.size])
    if (found_writer, found_place) != (writer, place) or data != block_of(writer, place, turn):
        raise Failed(f"writer {writer}: block {place} has bytes that were never written there")
    return turn


class Writer:
    """One process. It says each place with its turn once that is durable."""

    def __init__(self, number, path, said, arguments):
        self.number, self.path, self.said, self.blocks = number, path, said, arguments.blocks
        self.random = random.Random(f"{arguments.seed}/{number}")

    def say(self, places):
        os.write(self.said, b"".join(SAID.pack(self.number, place, turn) for place, turn in places))

    def append(self):
        """A log: each record is synced."""
        with open(self.path, "wb", buffering=0) as file:
            for turn in range(1 << 30):
                place = turn % (self.blocks * 4)
                if place == 0 and turn:
                    file.seek(0)
                count = self.random.randrange(1, 9)
                file.write(block_of(self.number, place, turn))
                if turn % count == 0:
                    os.fsync(file.fileno())
                    self.say([(place, turn)])

    def overwrite(self):
        """Blocks at any place, many at a time."""
        with open(self.path, "wb", buffering=0) as file:
            os.truncate(file.fileno(), self.blocks * BLOCK)
            for turn in range(1 << 30):
                places = self.random.sample(range(self.blocks), self.random.randrange(1, 400))
                for place in places:
                    os.pwrite(file.fileno(), block_of(self.number, place, turn), place * BLOCK)
                os.fsync(file.fileno())
                for start in range(0, len(places), 100):
                    self.say([(place, turn) for place in places[start : start + 100]])

    def map(self):
        """Through a shared mapping."""
        with open(self.path, "w+b", buffering=0) as file:
            os.truncate(file.fileno(), self.blocks * BLOCK)
            with mmap.mmap(file.fileno(), self.blocks * BLOCK) as mapping:
                for turn in range(1 << 30):
                    places = self.random.sample(range(self.blocks), self.random.randrange(1, 200))
                    for place in places:
                        mapping[place * BLOCK : (place + 1) * BLOCK] = block_of(self.number, place, turn)
                    mapping.flush()
                    for start in range(0, len(places), 100):
                        self.say([(place, turn) for place in places[start : start + 100]])

    def read(self):
        """Reads what others write, so that their pages compete; says that it goes on."""
        directory = os.path.dirname(self.path)
        for turn in range(1 << 30):
            for name in sorted(os.listdir(directory)):
                with open(f"{directory}/{name}", "rb") as file:
                    while file.read(1 << 20):
                        pass
            self.say([(0, turn)])


WAYS = (Writer.append, Writer.overwrite, Writer.map, Writer.overwrite, Writer.map, Writer.read)


class Run:
    def __init__(self, arguments, tool, scratch):
        self.arguments, self.tool, self.scratch = arguments, tool, scratch
        self.image, self.point = f"{scratch}/image.img", f"{scratch}/mount"
        self.group, self.server, self.writers = Group(arguments.mebibytes), None, []
        self.durable, self.count = {}, [0] * len(WAYS)
        self.last = [time.monotonic()] * len(WAYS)

    def start_server(self):
        subprocess.run([self.tool, "--quiet", "mkfs", "-b", "1G", self.image], check=True)
        os.mkdir(self.point)

        def enter():
            self.group.enter()
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")

        command = [self.tool, "mount", "-f", "-o", self.arguments.options, self.image, self.point]
        self.log = open(f"{self.scratch}/server.log", "wb")
        self.server = subprocess.Popen(command, preexec_fn=enter, stdout=self.log, stderr=self.log)
        while not os.path.ismount(self.point):
            if self.server.poll() is not None:
                raise Failed(f"the server ended with {self.server.returncode} before it served")
            time.sleep(.05)

    def start_writers(self):
        self.heard, said = os.pipe()
        for number, way in enumerate(WAYS):
            child = os.fork()
            if child:
                self.writers.append(child)
                continue
            try:
                self.group.enter()
                way(Writer(number, f"{self.point}/f{number}", said, self.arguments))
            except OSError as error:
                print(f"writer {number}: {error}", file=sys.stderr)
            finally:
                os._exit(1)
        os.close(said)

    def hear(self, seconds):
        """Keeps what the writers say is durable; False when all have ended."""
        ready, _, _ = select.select([self.heard], [], [], seconds)
        if not ready:
            return True
        data = os.read(self.heard, SAID.size * 200)
        while len(data) % SAID.size:
            data += os.read(self.heard, SAID.size - len(data) % SAID.size)
        for number, place, turn in SAID.iter_unpack(data):
            self.count[number] += 1
            self.last[number] = time.monotonic()
            if WAYS[number] is not Writer.read:
                self.durable[number, place] = max(turn, self.durable.get((number, place), -1))
        return bool(data)

    def work(self):
        end = time.monotonic() + self.arguments.seconds
        while time.monotonic() < end:
            self.hear(1)
            if self.server.poll() is not None:
                raise Failed(f"the server ended with {self.server.returncode} while it served")
            slowest = min(range(len(WAYS)), key=lambda number: self.last[number])
            if time.monotonic() - self.last[slowest] > STANDSTILL_SECONDS:
                raise Failed(f"writer {slowest} ({WAYS[slowest].__name__}) stands still: {stack(self.writers[slowest])}")

    def kill_for_memory(self):
        """Takes memory in the group until the kernel has killed the server, which it is told to take first."""
        hog = os.fork()
        if hog == 0:
            self.group.enter()
            taken = []
            while True:
                taken.append(bytearray(os.urandom(1 << 20)))
        end = time.monotonic() + STANDSTILL_SECONDS
        while self.server.poll() is None:
            self.hear(.1)
            if time.monotonic() > end:
                os.kill(hog, signal.SIGKILL)
                raise Failed("the kernel did not kill the server")
        os.kill(hog, signal.SIGKILL)
        os.waitpid(hog, 0)
        if self.server.returncode != -signal.SIGKILL or self.group.kills() == 0:
            raise Failed(f"the server ended with {self.server.returncode}, not for memory")
        silent = [way.__name__ for way, count in zip(WAYS, self.count) if not count]
        if silent:
            raise Failed(f"nothing was heard of {', '.join(silent)}")
        end = time.monotonic() + STANDSTILL_SECONDS
        while self.hear(1):
            if time.monotonic() > end:
                raise Failed("a writer did not end with its server")

    def judge(self):
        subprocess.run(["umount", "-i", "-l", self.point], check=True)
        for command in ([self.tool, "check", self.image], ["btrfs", "check", "--readonly", "--check-data-csum", self.image]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise Failed(f"{command[0]} check: {done.stdout[-500:]}{done.stderr[-500:]}")
        for number, way in enumerate(WAYS):
            if way is Writer.read:
                continue
            done = subprocess.run([self.tool, "cat", f"{self.image}:/f{number}"], capture_output=True, check=True)
            for place in range(len(done.stdout) // BLOCK):
                data = done.stdout[place * BLOCK : (place + 1) * BLOCK]
                if turn_in(data, number, place) < self.durable.get((number, place), -1):
                    raise Failed(f"writer {number}: block {place} lost what was synced")
            lost = [key for key in self.durable if key[0] == number and (key[1] + 1) * BLOCK > len(done.stdout)]
            if lost:
                raise Failed(f"writer {number}: the file ends before {len(lost)} blocks that were synced")

    def end(self):
        for writer in self.writers:
            os.kill(writer, signal.SIGKILL)
        if self.server and self.server.poll() is None:
            self.server.kill()
        if self.server:
            self.server.wait()
        subprocess.run(["umount", "-i", "-l", self.point], stderr=subprocess.DEVNULL)
        for writer in self.writers:
            os.waitpid(writer, 0)
        self.group.remove()


def stack(process):
    try:
        with open(f"/proc/{process}/stack") as file:
            return " ".join(line.split()[-1] for line in file)
    except OSError as error:
        return str(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: 1)")
    parser.add_argument("--seconds", type=int, default=600, help="how long the writers write (default: 600)")
    parser.add_argument("--mebibytes", type=int, default=128, help="of memory that the group has (default: 128)")
    parser.add_argument("--blocks", type=int, default=8192, help="of 4 KiB that a file has (default: 8192)")
    parser.add_argument("--options", default="cache=32M,dirty=8M", help="of the mount (default: cache=32M,dirty=8M)")
    parser.add_argument("--dir", default="/var/tmp", help="where the image lies; not in memory (default: /var/tmp)")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.dir):
        parser.error(f"--dir {arguments.dir} is no directory")
    tool = shutil.which(arguments.vlinder)
    if not tool or os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not shutil.which("btrfs"):
        print("run.py needs vlinder, btrfs-progs, root and /dev/fuse", file=sys.stderr)
        return 2
    if arguments.mebibytes < LEAST_MEBIBYTES:
        print(f"run.py: less than {LEAST_MEBIBYTES} MiB hold no server with its clients", file=sys.stderr)
        return 2
    result = {"seed": arguments.seed, "seconds": arguments.seconds, "mebibytes": arguments.mebibytes, "options": arguments.options}
    with tempfile.TemporaryDirectory(prefix="vlinder-memory-", dir=arguments.dir) as scratch:
        run = Run(arguments, os.path.abspath(tool), scratch)
        try:
            run.start_server()
            run.start_writers()
            run.work()
            run.kill_for_memory()
            run.judge()
            result["verdict"] = "pass"
        except Failed as error:
            result |= {"verdict": "fail", "reason": str(error)}
            if os.path.exists(f"{scratch}/server.log"):
                with open(f"{scratch}/server.log") as file:
                    result["server"] = file.read()[-2000:]
        finally:
            result |= {"said": run.count, "durable_blocks": len(run.durable), "peak_bytes": run.group.peak()}
            run.end()
    print(json.dumps(result))
    return 0 if result["verdict"] == "pass" else 1


if __name__ == "__main__":
    sys.exit(main())
