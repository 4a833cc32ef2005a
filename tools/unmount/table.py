#!/usr/bin/env python3
"""Ends mounts in every way, after every number of requests, with every number of threads, and judges the end.

Of each cell: the command ends within ten seconds; the server ends by itself within ten seconds after the last
place of its mount is gone; both checkers find the image clean; what the requests made is in the image. Places
are second ones: a bind mount of a directory, of a file, of the root, and another mount namespace. There the
command must end at once, too, and leave all durable, and the server ends once the last place is gone.

Prints a line for each cell that fails, and one of JSON with the counts. The exit status is 0 if none failed. Needs
root, /dev/fuse, fuse3 and btrfs-progs.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

MOST_SECONDS = 10
IMAGE_BYTES = "128M"
THREADS = (1, 2, 3, 4, 8, 16)
REQUESTS = (0, 1, 2, 3, 7, 20)
# How each way ends the mount; {tool}, {point} and {server} are filled in.
WAYS = {
    "vlinder": "{tool} umount {point}",
    "umount": "umount {point}",
    "umount-i": "umount -i {point}",
    "fusermount3": "fusermount3 -u {point}",
    "SIGTERM": "kill -TERM {server}",
    "lazy": "umount -i -l {point}",
}
PLACES = ("directory", "file", "root", "namespace")


@dataclass(frozen=True)
class Cell:
    threads: int
    requests: int
    way: str
    place: str = ""

    def name(self):
        place = f", also seen in a second place ({self.place})" if self.place else ""
        return f"threads={self.threads}, {self.requests} requests, {self.way}{place}"


class Failed(Exception):
    """What a cell did not do; a sentence."""


def call(*command, seconds=MOST_SECONDS):
    """Runs a command: its status and what it said. Raises Failed if it does not end in time."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)}: no end after {seconds} s") from error
    return done.returncode, (done.stdout + done.stderr).strip()


def require(*command, seconds=60):
    status, text = call(*command, seconds=seconds)
    if status:
        raise Failed(f"{' '.join(command)}: status {status}: {text[-300:]}")
    return text


def wait_until(what, condition, seconds=MOST_SECONDS):
    """Waits for a condition; gives how long that took. Raises Failed."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.01)
    return time.monotonic() - begun


def is_mounted(point):
    with open("/proc/self/mounts", encoding="utf-8") as lines:
        return any(line.split()[1] == point for line in lines)


class Trial:
    """One mount from its beginning to its end, in a directory of its own."""

    def __init__(self, cell, tool, template):
        self.cell, self.tool = cell, tool
        self.top = tempfile.mkdtemp(prefix="vlinder-unmount-", dir="/dev/shm")
        self.image, self.point, self.second = (os.path.join(self.top, name) for name in ("image", "m", "second"))
        shutil.copyfile(template, self.image)
        os.mkdir(self.point)
        self.server, self.namespace, self.made = None, None, []

    def mount(self):
        options = f"threads={self.cell.threads}"
        self.server = subprocess.Popen([self.tool, "mount", "-f", "-o", options, self.image, self.point],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=open(f"{self.top}/log", "w"), start_new_session=True)
        # Where a mount is seen, its server may still be starting.
        wait_until("mounting", lambda: self.says("is mounted on") or self.server.poll() is not None)

    def says(self, words):
        """Whether the server's log has these words."""
        with open(f"{self.top}/log", encoding="utf-8", errors="replace") as log:
            return words in log.read()

    def ask(self):
        """Requests of several kinds; what the last of each kind made must be there later."""
        for number in range(self.cell.requests):
            if number % 3 == 0:
                os.stat(self.point)
            elif number % 3 == 1:
                self.made.append(f"d{number}")
                os.mkdir(f"{self.point}/d{number}")
            else:
                self.made.append(f"f{number}")
                with open(f"{self.point}/f{number}", "wb") as file:
                    file.write(b"content")

    def open_second_place(self):
        place = self.cell.place
        if place == "namespace":
            self.namespace = subprocess.Popen(["unshare", "-m", "sleep", "1000"])
            own = os.readlink("/proc/self/ns/mnt")
            wait_until("a namespace", lambda: os.readlink(f"/proc/{self.namespace.pid}/ns/mnt") != own)
        elif place == "root":
            os.mkdir(self.second)
            require("mount", "--bind", self.point, self.second)
        elif place == "directory":
            os.makedirs(f"{self.point}/bound")
            os.mkdir(self.second)
            require("mount", "--bind", f"{self.point}/bound", self.second)
        elif place == "file":
            for path in (f"{self.point}/bound", self.second):
                with open(path, "wb"):
                    pass
            require("mount", "--bind", f"{self.point}/bound", self.second)
        if place in ("directory", "file"):
            self.made.append("bound")

    def close_second_place(self):
        if self.namespace:
            self.namespace.kill()
            self.namespace.wait()
        elif self.cell.place:
            require("umount", "-i", self.second)

    def end(self):
        """Ends the mount. Where a second place holds it, the server must go on until that is closed, and then end."""
        way = WAYS[self.cell.way].format(tool=self.tool, point=self.point, server=self.server.pid)
        status, text = call(*way.split())
        if status:
            raise Failed(f"{way}: status {status}: {text[-300:]}")
        wait_until("the mount point is free", lambda: not is_mounted(self.point))
        if self.cell.place:
            if self.cell.way == "vlinder":
                self.judge_copy()
            self.close_second_place()
        wait_until("the server's end", lambda: self.server.poll() is not None)
        if self.server.returncode:
            raise Failed(f"the server ended with status {self.server.returncode}")

    def judge_copy(self):
        """0 of `vlinder umount` means durable, wherever else the mount is still seen."""
        copy = f"{self.top}/copy"
        shutil.copyfile(self.image, copy)
        self.judge(copy)

    def judge(self, image):
        require(self.tool, "check", image)
        require("btrfs", "check", "--readonly", image)
        there = require(self.tool, "ls", f"{image}:/").split()
        missing = [name for name in self.made if name not in there]
        if missing:
            raise Failed(f"not in the image: {', '.join(missing)}")

    def run(self):
        self.mount()
        self.ask()
        self.open_second_place()
        self.end()
        self.judge(self.image)

    def close(self):
        if self.namespace and self.namespace.poll() is None:
            self.namespace.kill()
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGKILL)
            self.server.wait()
        for place in (self.second, self.point):
            if is_mounted(place):
                subprocess.run(["umount", "-i", "-l", place], check=False)
        shutil.rmtree(self.top, ignore_errors=True)


def cells(arguments):
    """Each cell once, a third that the seed chooses as often as is wanted, second places likewise."""
    table = [Cell(threads, requests, way) for threads in THREADS for requests in REQUESTS for way in WAYS]
    chooser = random.Random(arguments.seed)
    again = chooser.sample(table, len(table) // 3)
    places = [Cell(chooser.choice(THREADS), chooser.choice(REQUESTS), way, place)
              for place in PLACES for way in WAYS for _ in range(arguments.repeat)]
    whole = table + [cell for cell in again for _ in range(arguments.repeat - 1)] + places
    chooser.shuffle(whole)
    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    parser.add_argument("--seed", type=int, default=1, help="chooses order and repetitions (default: 1)")
    parser.add_argument("--repeat", type=int, default=20, help="times for what is repeated (default: 20)")
    parser.add_argument("--minutes", type=float, help="ends after so long (default: when all is done)")
    arguments = parser.parse_args()
    tool = shutil.which(arguments.vlinder)
    if not tool or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("table.py needs vlinder, root and /dev/fuse", file=sys.stderr)
        return 2
    end = time.monotonic() + 60 * (arguments.minutes or 1e9)
    passed = failed = 0
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as template:
        require(tool, "--quiet", "mkfs", "-f", "-b", IMAGE_BYTES, template.name)
        for cell in cells(arguments):
            if time.monotonic() > end:
                break
            trial = Trial(cell, tool, template.name)
            try:
                trial.run()
                passed += 1
            except (Failed, OSError) as error:
                failed += 1
                print(f"FAILED {cell.name()}: {error}", flush=True)
            finally:
                trial.close()
    is_good = passed and not failed
    print(json.dumps({"seed": arguments.seed, "repeat": arguments.repeat, "passed": passed, "failed": failed,
                      "verdict": "pass" if is_good else "fail"}))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
