"""One program under test: its image, its mounts, the kill of the server, and the two replays of the log."""

import os
import random
import shutil
import sys
import time

from .listing import differences, listing, named, without_replay_times
from .processes import Failed, call, kill_descendants, reap_orphans, require

# The mounts of Linux and of vlinder are those of the tool for full disks.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../full"))
from full_disk.systems import Linux, Vlinder, copy_sparse, is_mounted, mounts  # noqa: E402

# Databases run as users of their own; a root file system has devices and programs with other rights.
MOUNT_OPTIONS = "allow_other,dev,suid"


class Trial:
    """What all programs have in common. A subclass has NEEDS, SIZE, ROUNDS and `round`."""

    # Commands that must be there.
    NEEDS = ()
    SIZE = "1G"
    ROUNDS = 3

    def __init__(self, settings, scratch):
        self.settings, self.scratch = settings, scratch
        self.vlinder = settings.vlinder
        self.point = os.path.join(scratch, "mount")
        self.random, self.number, self.directory = None, 0, None
        self.mount, self.report, self.opened = None, {}, []
        self.killed_ns = 0

    # What a program does.

    def prepare(self):
        """What all rounds need."""

    def round(self):
        raise NotImplementedError

    def run(self):
        self.prepare()
        for number in range(self.settings.rounds or self.ROUNDS):
            self.number = number
            self.random = random.Random(f"{type(self).__name__}/{self.settings.seed}/{number}")
            self.directory = os.path.join(self.scratch, f"round-{number}")
            os.mkdir(self.directory)
            self.round()
            shutil.rmtree(self.directory)
            self.count("rounds_done", 1)

    # What it does it with.

    def count(self, name, number):
        self.report[name] = self.report.get(name, 0) + number

    def path(self, name):
        """A path of this round, outside of the mount."""
        return os.path.join(self.directory, name)

    def make_image(self, name="image.img"):
        image = self.path(name)
        require(self.vlinder, "--quiet", "mkfs", "-b", self.settings.size or self.SIZE, image)
        return image

    def open(self, image):
        """Mounts an image by vlinder."""
        options = ",".join(filter(None, [MOUNT_OPTIONS, self.settings.options]))
        self.mount = Vlinder(self.vlinder, image, self.point, options)
        self.mount.log = self.path("server.log")
        return self.open_mount(self.mount)

    def open_mount(self, mount):
        self.mount = mount
        self.opened.append(mount)
        try:
            mount.open()
        except RuntimeError as error:
            raise Failed(str(error)) from error
        if not is_mounted(self.point):
            raise Failed(f"nothing is mounted on {self.point}")
        return mount

    def servers(self):
        return [mount.server for mount in self.opened if isinstance(mount, Vlinder) and mount.server]

    def living(self):
        """The numbers of vlinder's servers that live."""
        return {server.pid for server in self.servers() if server.poll() is None}

    def sync(self):
        """Makes all durable. The kernel does not tell a FUSE server of sync(2), so the program is asked."""
        require(self.vlinder, "filesystem", "sync", self.point)

    def unmount(self):
        """Unmounts what is mounted, and judges the image. No process of the program may be left."""
        kill_descendants(besides=self.living())
        reap_orphans(self.servers())
        unmount_below(self.point)
        done = self.mount.unmount()
        if done.failed():
            raise Failed(f"unmounting ({self.mount.name}): {done.short()}")
        self.judge_server()
        self.check(self.mount.image)

    def judge_server(self):
        if isinstance(self.mount, Vlinder):
            complaints = self.mount.complaints()
            if complaints:
                raise Failed("; ".join(complaints))

    def check(self, image):
        """Both checkers must find the image clean."""
        require(self.vlinder, "check", "--check-data-csum", image)
        require("btrfs", "check", "--readonly", "--check-data-csum", image)

    def crash(self):
        """Kills the server with SIGKILL, then the program, whose file system is gone, and detaches the dead mount."""
        server = self.mount.server
        if server.poll() is not None:
            raise Failed(f"the server ended with {server.returncode} before it was killed")
        server.kill()
        server.wait()
        self.killed_ns = time.time_ns()
        self.count("kills", 1)
        kill_descendants()
        reap_orphans(self.servers())
        self.judge_server()
        require("umount", "-i", "-l", self.point)
        if is_mounted(self.point):
            raise Failed(f"something is mounted on {self.point} after the dead mount is gone")

    def replays(self):
        """Gives the mount of the image that a crash left by vlinder, then that of a copy by Linux.

        Linux mounts the copy only after both checkers have accepted it. Before the program starts again, both systems
        must show the same files.
        """
        image, copy = self.mount.image, self.path("copy.img")
        copy_sparse(image, copy)
        self.check(copy)
        self.open(image)
        seen = without_replay_times(listing(self.point), self.killed_ns)
        yield self.mount
        self.unmount()
        self.open_mount(Linux(copy, self.point))
        found = differences(seen, without_replay_times(listing(self.point), self.killed_ns))
        if found:
            raise Failed(f"vlinder's replay (first) and Linux's (second) differ: {named(found)}")
        self.count("files_compared", len(seen))
        yield self.mount
        self.unmount()
        os.unlink(copy)
        os.unlink(image)

    def end(self):
        """Takes away what is left, whatever happened."""
        for process in self.servers():
            if process.poll() is None:
                process.kill()
                process.wait()
        kill_descendants()
        unmount_below(self.point)
        while is_mounted(self.point):
            if call("umount", "-i", "-l", self.point)[0]:
                break

    def keep(self):
        """Keeps the images and logs of a run that failed."""
        if not self.settings.keep or not self.directory:
            return
        target = os.path.join(self.settings.keep, f"{os.path.basename(self.scratch)}-round-{self.number}")
        os.makedirs(target, exist_ok=True)
        for name in os.listdir(self.directory):
            if name.endswith((".img", ".log", ".ledger")):
                call("cp", "--sparse=always", self.path(name), target)


def unmount_below(point):
    """Unmounts what a program has mounted below a directory, the last first. One place may be mounted twice."""
    below = [path for path, _ in mounts() if path.startswith(f"{point}/")]
    for path in reversed(below):
        require("umount", "-l", path)
    left = [path for path, _ in mounts() if path.startswith(f"{point}/")]
    if left:
        raise Failed(f"still mounted: {', '.join(left)}")


def wait_seconds(chooser, low, high):
    """Waits so long as is drawn."""
    time.sleep(chooser.uniform(low, high))


__all__ = ["Linux", "Trial", "unmount_below", "wait_seconds"]
