#!/usr/bin/env python3
"""Writes and removes, says sync(1), waits three seconds, and kills the server: nothing of that may be missing.

The kernel tells a FUSE server nothing of sync(2); what is left alone becomes durable by itself. Prints a line
for each run that fails, and one with the counts. Needs root, /dev/fuse and btrfs-progs.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

from table import IMAGE_BYTES, Cell, Failed, Trial, require  # noqa: E402

WAIT_SECONDS = 3
MOST_BYTES = 200_000


class Plug(Trial):
    """One mount whose server is killed."""

    def __init__(self, seed, tool, template):
        super().__init__(Cell(threads=1 + seed % 8, requests=0, way="SIGKILL"), tool, template)
        self.random, self.files = random.Random(seed), {}

    def change(self):
        """Files that are made, overwritten, renamed and removed; the last is written as `echo x` does."""
        for number in range(self.random.randrange(40)):
            name = f"f{number}"
            self.files[name] = self.random.randbytes(self.random.randrange(MOST_BYTES))
            with open(f"{self.point}/{name}", "wb") as file:
                file.write(self.files[name])
            if self.random.random() < .3:
                gone = self.random.choice(list(self.files))
                os.unlink(f"{self.point}/{gone}")
                del self.files[gone]
            if self.files and self.random.random() < .2:
                old = self.random.choice(list(self.files))
                os.rename(f"{self.point}/{old}", f"{self.point}/r{number}")
                self.files[f"r{number}"] = self.files.pop(old)
        subprocess.run(["sh", "-c", "echo x > f; sync"], cwd=self.point, check=True)
        self.files["f"] = b"x\n"

    def run(self):
        self.mount()
        self.change()
        time.sleep(WAIT_SECONDS)
        self.server.kill()
        self.server.wait()
        require("umount", "-i", "-l", self.point)
        require(self.tool, "check", self.image)
        require("btrfs", "check", "--readonly", self.image)
        there = set(require(self.tool, "ls", f"{self.image}:/").split())
        if there != set(self.files):
            raise Failed(f"missing: {sorted(set(self.files) - there)}, not removed: {sorted(there - set(self.files))}")
        for name, content in self.files.items():
            found = subprocess.run([self.tool, "cat", f"{self.image}:/{name}"], capture_output=True, check=True)
            if found.stdout != content:
                raise Failed(f"{name} has other bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run (default: 1)")
    parser.add_argument("--runs", type=int, default=50, help="how many (default: 50)")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs is at least 1")
    tool = shutil.which(arguments.vlinder)
    if not tool or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("plug.py needs vlinder, root and /dev/fuse", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as template:
        require(tool, "--quiet", "mkfs", "-f", "-b", IMAGE_BYTES, template.name)
        for seed in range(arguments.seed, arguments.seed + arguments.runs):
            trial = Plug(seed, tool, template.name)
            try:
                trial.run()
            except (Failed, OSError, subprocess.CalledProcessError) as error:
                failed += 1
                print(f"FAILED seed {seed}: {error}", flush=True)
            finally:
                trial.close()
    print(f"{arguments.runs - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
