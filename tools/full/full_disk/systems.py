"""The systems that mount an image: vlinder through FUSE, and Linux's btrfs through a loop device."""

import ctypes
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass

# A command that takes longer than this counts as hanging.
COMMAND_SECONDS = 300
# Linux frees a deleted subvolume on a full disk with a commit for every few references. It may take its time as long as a look
# after so many seconds finds a further commit.
LOOK_SECONDS = 60
# So many looks are enough: what Linux has not freed by then is reported, and its other figures stand.
MOST_LOOKS = 15
GOES_ON = "goes on"
MOUNT_SECONDS = 60
SERVER_SECONDS = 30
# Mount options that only vlinder has.
VLINDER_OPTIONS = ("cache", "dirty", "threads", "writeback", "owners", "disable", "idle")
PR_SET_PDEATHSIG = 1
# Where the superblock holds its generation.
GENERATION_OFFSET = (64 << 10) + 0x48
# Counters of vlinder that say how near a reservation came to being too small.
BROKEN_PROMISES = "space.broken_promises"
MOST_USED = "space.most_used_permille."


@dataclass
class Result:
    """What a command ended with."""

    status: int
    text: str

    def failed(self):
        return self.status != 0

    def short(self):
        """The status, and what the command said if it failed."""
        return f"status {self.status}: {self.text[-300:]}" if self.failed() else "status 0"


def call(*command, seconds=COMMAND_SECONDS):
    """Runs a command. A command that does not end in time is killed and has status 124."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Result(124, f"no end after {seconds} s")
    return Result(done.returncode, (done.stdout + done.stderr).strip())


def is_mounted(point):
    """Whether something is mounted there. The list is asked: stat(2) would wait for a hanging server."""
    return any(where == point for where, _ in mounts())


def mounts():
    """Mount points and their options."""
    with open("/proc/mounts", encoding="utf-8") as lines:
        return [(fields[1], fields[3].split(",")) for fields in map(str.split, lines)]


def copy_sparse(source, destination):
    """Copies an image, holes included."""
    done = call("cp", "--sparse=always", source, destination)
    if done.failed():
        raise RuntimeError(f"copying {source}: {done.text}")


def generation(image):
    """The generation of the first superblock."""
    with open(image, "rb") as file:
        file.seek(GENERATION_OFFSET)
        return int.from_bytes(file.read(8), "little")


class Mount:
    """A mounted image. `name` is the system's name, `tool` the program that has the btrfs verbs."""

    name = ""

    def __init__(self, tool, image, point, options=""):
        self.tool, self.image, self.point, self.options = tool, image, point, options
        self.is_open = False
        os.makedirs(point, exist_ok=True)

    def sync(self):
        return call(self.tool, "filesystem", "sync", self.point)

    def snapshot(self, name):
        return call(self.tool, "subvolume", "snapshot", "-r", self.point, f"{self.point}/{name}")

    def delete_subvolume(self, path):
        return call(self.tool, "subvolume", "delete", f"{self.point}/{path}")

    def wait_for_deleted_subvolumes(self):
        return call(self.tool, "subvolume", "sync", self.point)

    def subvolumes(self):
        """Paths of all subvolumes and snapshots, nested ones first. Raises RuntimeError."""
        done = call(self.tool, "subvolume", "list", self.point)
        if done.failed():
            raise RuntimeError(f"subvolume list: {done.text}")
        paths = [line.split(" path ", 1)[1] for line in done.text.splitlines() if " path " in line]
        return sorted(paths, key=lambda path: (-path.count("/"), path))

    def metadata(self):
        """The metadata's line of `filesystem df`."""
        lines = call(self.tool, "filesystem", "df", self.point).text.splitlines()
        return next((line for line in lines if line.startswith("Metadata")), "")

    def complaints(self):
        """What the mount says went wrong; sentences."""
        raise NotImplementedError

    def gauges(self):
        """Counters that tell how well space was reserved; a system without them has none."""
        return {}

    def held_bytes(self):
        """How many bytes the mount could not store, was told of, and tries again."""
        return 0

    def background_failures(self):
        """How often background work failed and was put off."""
        return 0

    def broken_promises(self, gauges):
        """A sentence if a reservation was too small for what it was made for."""
        count = gauges.get(BROKEN_PROMISES, 0)
        return [f"{BROKEN_PROMISES} is {count}"] if count else []

    def drop(self):
        """Takes the mount away for good, whatever state it is in."""
        self.is_open = False
        if is_mounted(self.point):
            call("umount", "-i", "-l", self.point, seconds=30)


class Vlinder(Mount):
    """An image mounted by `vlinder mount`, with the server's log beside the image."""

    name = "vlinder"

    def __init__(self, tool, image, point, options=""):
        super().__init__(tool, image, point, options)
        self.log = f"{point}.log"
        self.server = None

    def open(self):
        """Mounts. Raises RuntimeError."""
        options = ["-o", self.options] if self.options else []
        with open(self.log, "ab") as log:
            self.server = subprocess.Popen(
                [self.tool, "mount", "-f", *options, self.image, self.point], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent)
        end = time.monotonic() + MOUNT_SECONDS
        while not is_mounted(self.point):
            if self.server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"vlinder mount: {self.log_text()[-500:]}")
            time.sleep(0.02)
        self.is_open = True

    def statistics(self):
        """What `stats` tells. Raises RuntimeError."""
        done = call(self.tool, "--json", "stats", self.point)
        if done.failed():
            raise RuntimeError(f"stats: {done.short()}")
        return json.loads(done.text)

    def held_bytes(self):
        return self.statistics()["condition"]["held_bytes"]

    def gauges(self):
        try:
            metrics = self.statistics()["metrics"]
        except RuntimeError as error:
            return {"stats": str(error)}
        names = [BROKEN_PROMISES, *(name for name in metrics if name.startswith(MOST_USED))]
        return {name: metrics[name]["value"] for name in names}

    def broken_promises(self, gauges):
        if BROKEN_PROMISES not in gauges:
            return [f"the counters can't be read: {gauges.get('stats')}"]
        return super().broken_promises(gauges)

    def log_text(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def complaints(self):
        """What the server's log says went wrong, without repetitions and times."""
        marks = ("read-only from now on", "panicked")
        lines = [line for line in self.log_text().splitlines() if any(mark in line for mark in marks)]
        counts = {}
        for line in lines:
            words = line.split("ERROR", 1)[-1].strip()
            counts[words] = counts.get(words, 0) + 1
        return [f"log, {count} times: {words[:240]}" for words, count in counts.items()]

    def background_failures(self):
        return self.log_text().count("a commit failed; it is tried again")

    def unmount(self):
        """One `vlinder umount`. The server must have ended soon after it."""
        done = call(self.tool, "umount", self.point)
        if not done.failed():
            try:
                self.server.wait(SERVER_SECONDS)
            except subprocess.TimeoutExpired:
                return Result(125, f"the server lives {SERVER_SECONDS} s after the mount is gone")
        return done

    def drop(self):
        super().drop()
        if self.server and self.server.poll() is None:
            try:
                self.server.wait(3)
            except subprocess.TimeoutExpired:
                self.abort()

    def abort(self):
        """Kills the server: requests that hang end with an error."""
        if self.server:
            self.server.kill()
            self.server.wait()


class Linux(Mount):
    """An image mounted by the kernel. Only images that both checkers accept may come here."""

    name = "linux"

    def __init__(self, image, point, options=""):
        known = [option for option in options.split(",") if option.split("=")[0] not in VLINDER_OPTIONS]
        super().__init__("btrfs", image, point, ",".join(["loop", *filter(None, known)]))

    def open(self):
        """Mounts. Raises RuntimeError."""
        done = call("mount", "-t", "btrfs", "-o", self.options, self.image, self.point)
        if done.failed():
            raise RuntimeError(f"mount: {done.text}")
        self.is_open = True

    def wait_for_deleted_subvolumes(self):
        for _ in range(MOST_LOOKS):
            before = generation(self.image)
            done = call(self.tool, "subvolume", "sync", self.point, seconds=LOOK_SECONDS)
            if done.status != 124 or generation(self.image) == before:
                return done
        return Result(0, f"{GOES_ON} after {MOST_LOOKS * LOOK_SECONDS} s")

    def complaints(self):
        """Says so if the kernel has made the mount read-only."""
        is_read_only = any(point == self.point and "ro" in options for point, options in mounts())
        return ["the kernel made the mount read-only"] if is_read_only else []

    def unmount(self):
        done = call("umount", self.point)
        if not done.failed():
            wait_for_loop_device(self.image)
        return done

    def abort(self):
        """The kernel can't be killed; a call that hangs in it stays."""


def wait_for_loop_device(image):
    """Waits until no loop device holds the image: it is detached a moment after the mount is gone."""
    for _ in range(200):
        if not call("losetup", "--associated", image).text:
            return
        time.sleep(0.05)


def die_with_parent():
    """In a child: it is killed when this program ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
