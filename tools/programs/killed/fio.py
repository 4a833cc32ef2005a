"""fio: jobs that verify what they wrote, over several engines; those that had ended must be whole after a kill.

Each job writes a file of its own, with a checksum in the head of each block, and syncs it before it ends. After the
kill each file of a job that had ended with 0 is verified, by the same job with --verify_only.
"""

import json
import os
import shutil
import subprocess
import time

from .processes import Failed, call
from .trial import Linux, Trial

ENGINES = {
    "aio": ("--ioengine=libaio", "--iodepth=16", "--direct=0"),
    "aio-direct": ("--ioengine=libaio", "--iodepth=16", "--direct=1"),
    "write": ("--ioengine=psync", "--fsync=7"),
    "direct": ("--ioengine=psync", "--direct=1", "--fsync=16"),
    "mmap": ("--ioengine=mmap", "--fdatasync=8"),
    "uring": ("--ioengine=io_uring", "--iodepth=8", "--direct=0"),
}
PATTERNS = ("write", "randwrite")
BLOCK_SIZES = ("4k", "16k", "64k", "3k-20k")
SIZE = "6m"
# Direct writes are whole sectors, and the engine of mappings takes whole pages.
WHOLE_BLOCK_SIZES = ("4k", "16k", "64k")
WHOLE_BLOCKS = ("aio-direct", "direct", "mmap")
LEAST_SECONDS, MOST_SECONDS = 2, 8
JOB_SECONDS = 120
# One job in so many takes an earlier file; every job does where so little is free.
OVERWRITTEN = 0.25
LEAST_FREE_BYTES = 128 << 20


class Fio(Trial):
    NEEDS = ("fio",)
    SIZE = "512M"

    def round(self):
        image = self.make_image()
        self.open(image)
        done = {}
        if self.number == 0:
            done = self.verify_on_every_mount(image)
        self.write_until_killed(done)

    def job(self, name, engine=None):
        """The arguments of a job that is drawn. Its verification has the same."""
        engine = engine or self.random.choice(list(ENGINES))
        sizes = WHOLE_BLOCK_SIZES if engine in WHOLE_BLOCKS else BLOCK_SIZES
        block = self.random.choice(sizes)
        return [f"--name={name}", f"--filename={self.point}/{name}", *ENGINES[engine],
                f"--rw={self.random.choice(PATTERNS)}", f"--{'bsrange' if '-' in block else 'bs'}={block}",
                f"--size={SIZE}", f"--randseed={self.random.randrange(1, 1 << 31)}", "--verify=crc32c",
                "--verify_fatal=1", "--end_fsync=1", "--output-format=json"]

    def run_fio(self, job, *more):
        """Has fio do a job; what it said. Raises Failed with its errors, which come before its JSON."""
        status, words = call("fio", *job, *more, seconds=JOB_SECONDS, cwd=self.directory)
        if status:
            raise Failed(f"fio {' '.join([*job, *more])}: status {status}: {words.partition('{')[0].strip()[-600:]}")
        return words

    def verify(self, job, written):
        """Reads a job's file and demands each block that the job wrote. Raises Failed."""
        words = self.run_fio(job, "--verify_only=1")
        read = bytes_of(words, "read")
        # A verification that reads less finds less.
        if read != written or not written:
            raise Failed(f"fio {' '.join(job)}: {read} of {written} bytes were verified")
        self.count("bytes_verified", read)

    def verify_on_every_mount(self, image):
        """Has every engine write and verify at once, then verifies on a new mount of vlinder and on one of Linux."""
        done = {}
        for engine in ENGINES:
            name = f"first-{engine}"
            job = self.job(name, engine)
            done[name] = job, bytes_of(self.run_fio(job, "--do_verify=1"), "write")
        self.unmount()
        self.open_mount(Linux(image, self.point))
        self.verify_all(done)
        self.unmount()
        self.open(image)
        self.verify_all(done)
        return done

    def verify_all(self, jobs):
        for job, written in jobs.values():
            self.verify(job, written)

    def write_until_killed(self, done):
        """Has jobs write, one after the other, until the server is killed beside one of them.

        `done` has the jobs whose files must be whole. A job that writes an earlier job's file anew takes its place.
        """
        end = time.monotonic() + self.random.uniform(LEAST_SECONDS, MOST_SECONDS)
        written = 0
        while time.monotonic() < end or not written:
            overwrites = done and self.random.random() < OVERWRITTEN
            name = self.random.choice(sorted(done)) if overwrites else f"file-{written}"
            if shutil.disk_usage(self.point).free < LEAST_FREE_BYTES:
                name = self.random.choice(sorted(done))
            job = self.job(name)
            done.pop(name, None)
            with open(self.path("fio.log"), "wb") as log:
                process = subprocess.Popen(["fio", *job, "--do_verify=0"], stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, cwd=self.directory)
            while process.poll() is None and (time.monotonic() < end or not written):
                time.sleep(0.005)
            if process.poll() is None:
                break
            with open(self.path("fio.log"), encoding="utf-8", errors="replace") as log:
                words = log.read()
            if process.returncode:
                raise Failed(f"fio {' '.join(job)}: status {process.returncode}: {words[:600]}")
            done[name] = job, bytes_of(words, "write")
            written += 1
        self.crash()
        self.count("jobs_done", written)
        self.count("files_demanded", len(done))
        for _ in self.replays():
            self.verify_all(done)


def bytes_of(words, direction):
    """How many bytes a job read or wrote, from its JSON, which follows what it said."""
    result = json.loads(words[words.index("{"):])["jobs"][0]
    if result["error"]:
        raise Failed(f"fio: error {result['error']}")
    return result[direction]["io_bytes"]
