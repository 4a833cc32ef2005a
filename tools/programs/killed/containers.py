"""podman with overlay on the mount: an image of a Debian tree, and containers whose file system's server is killed."""

import os
import resource
import subprocess

from .debian import bootstrap
from .processes import Failed, Skipped, call, require, wait_until
from .trial import Trial, unmount_below, wait_seconds

IMAGE = "localhost/tree"
RUN_SECONDS = 120
FIRST_LINES = 5
MOST_OF_A_LIMIT = 1024
# Each line is synced before its number is printed, and the printed numbers go to a file outside of the mount.
WRITE_LINES = ('n=0; while :; do n=$((n+1)); echo "line $n" | dd of=/written oflag=append conv=notrunc,fsync '
               'status=none || exit 1; echo $n; done')
WRITE_ONCE = "echo once > /again && cat /again && dpkg --audit && ls /usr/bin | wc -l"
# Ways to run a container, from the fewest privileges that a kernel and a container around this may lack.
WAYS = (
    ("--runtime", "crun", "run", "--network=none"),
    ("--runtime", "crun", "run", "--network=none", "--cgroups=disabled", "--security-opt", "seccomp=unconfined"),
    ("--runtime", "runc", "run", "--network=none", "--security-opt", "seccomp=unconfined"),
)


class Podman(Trial):
    NEEDS = ("debootstrap", "podman", "tar", "apt-get")
    ROUNDS = 2
    SIZE = "2G"

    def command(self, *words, storage=None):
        """podman with all of its storage on the mount, and what a reboot would clear away outside of it."""
        return ["podman", "--root", storage or f"{self.point}/storage", "--runroot", self.path("run"), "--tmpdir",
                self.path("tmp"), "--storage-driver", "overlay", "--events-backend", "none", "--cgroup-manager",
                "cgroupfs", *words]

    def prepare(self):
        """Makes a Debian tree on a vlinder mount and a tar of it, and looks how containers run here."""
        self.directory = self.scratch
        self.open(self.make_image("tree.img"))
        bootstrap(self, f"{self.point}/tree")
        self.archive = os.path.join(self.scratch, "tree.tar")
        require("tar", "--numeric-owner", "--xattrs", "-C", f"{self.point}/tree", "-cf", self.archive, ".")
        self.unmount()
        os.unlink(self.mount.image)
        self.way = self.find_way()
        self.report["way"] = " ".join(self.way)

    def find_way(self):
        """The first way that runs a container on an ordinary file system. Raises Skipped if there is none."""
        storage = os.path.join(self.settings.ordinary, f"{os.path.basename(self.scratch)}-storage")
        # podman's own limits are higher than those of this process may be, and raising one may be forbidden.
        limits = [word for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
                  for word in ("--ulimit", f"{name}={lowest(number)}:{lowest(number)}")]
        try:
            require(*self.command("import", self.archive, IMAGE, storage=storage), seconds=RUN_SECONDS)
            tried = []
            for way in WAYS:
                words = [*way, *limits]
                command = self.command(*words, "--rm", IMAGE, "sh", "-c", "echo works", storage=storage)
                status, said = call(*command, seconds=RUN_SECONDS)
                if status == 0 and said.splitlines()[-1:] == ["works"]:
                    return words
                tried.append(f"{' '.join(command)}: status {status}: {said[-300:]}")
            raise Skipped(f"containers do not run on an ordinary file system: {'; '.join(tried)}")
        finally:
            unmount_below(storage)
            call("rm", "-rf", "--one-file-system", storage)
            self.reboot()

    def reboot(self):
        """Clears away what a reboot would."""
        for name in ("run", "tmp"):
            unmount_below(self.path(name))
            call("rm", "-rf", "--one-file-system", self.path(name))

    def round(self):
        self.open(self.make_image())
        require(*self.command("import", self.archive, IMAGE), seconds=RUN_SECONDS)
        # podman does not sync what it unpacks.
        self.sync()
        self.run_once("first")
        written = self.path("written.ledger")
        with open(written, "wb") as out, open(self.path("podman.log"), "wb") as log:
            writer = subprocess.Popen(self.command(*self.way, "--name=writer", IMAGE, "sh", "-c", WRITE_LINES),
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=log)

        def has_written():
            if writer.poll() is not None:
                with open(self.path("podman.log"), encoding="utf-8", errors="replace") as log:
                    raise Failed(f"the container ended with {writer.returncode}: {log.read()[-600:]}")
            return last_line(written) >= FIRST_LINES

        wait_until("lines of the container", has_written, RUN_SECONDS)
        # Nor does it sync the directories of a new container; from here on the writer's own syncs must do.
        self.sync()
        before = last_line(written)
        wait_seconds(self.random, 0.5, 3)
        has_written()
        self.crash()
        writer.wait()
        self.reboot()
        acknowledged = last_line(written)
        if acknowledged <= before:
            raise Failed("nothing was written between the sync and the kill")
        self.count("acknowledged", acknowledged)
        for mount in self.replays():
            self.judge(mount, acknowledged)
            unmount_below(self.point)
            self.reboot()

    def run_once(self, name):
        """Runs a container that writes, and demands what it says."""
        words = require(*self.command(*self.way, f"--name={name}", IMAGE, "sh", "-c", WRITE_ONCE),
                        seconds=RUN_SECONDS)
        lines = words.splitlines()
        if lines[:1] != ["once"] or len(lines) != 2 or int(lines[1]) < 100:
            raise Failed(f"container {name} says: {words[-600:]}")

    def judge(self, mount, acknowledged):
        """Every line that was acknowledged is there, in order, and containers run again."""
        top = require(*self.command("mount", "writer"), seconds=RUN_SECONDS).splitlines()[-1]
        with open(f"{top}/written", encoding="ascii") as file:
            lines = file.read().splitlines()
        require(*self.command("umount", "writer"), seconds=RUN_SECONDS)
        wrong = next((number for number, line in enumerate(lines, 1) if line != f"line {number}"), None)
        # The last line may have been written and not acknowledged.
        if len(lines) < acknowledged or len(lines) > acknowledged + 1 or wrong:
            raise Failed(f"after the replay of {mount.name}: {len(lines)} lines, {acknowledged} were acknowledged"
                         f"{f', line {wrong} is wrong' if wrong else ''}")
        self.count("lines_found", len(lines))
        self.run_once(f"again-{mount.name}")
        require(*self.command("rm", "--force", "writer"), seconds=RUN_SECONDS)
        names = require(*self.command("ps", "--all", "--format", "{{.Names}}"), seconds=RUN_SECONDS).split()
        if "writer" in names or f"again-{mount.name}" not in names:
            raise Failed(f"podman has the containers {', '.join(names)}")


def lowest(number):
    """A limit that this process may set, and that is enough for the containers."""
    return min([MOST_OF_A_LIMIT, *(limit for limit in resource.getrlimit(number) if limit != resource.RLIM_INFINITY)])


def last_line(path):
    """The last number that was printed in whole."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    return int(lines[-1]) if lines else 0
