"""debootstrap: a Debian tree made on the mount by dpkg, tar and a chroot, whole and with the server killed."""

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

from .listing import differences, listing, lost_since, named
from .processes import Failed, Skipped, call, descendants, require, send, wait_until
from .trial import Linux, Trial, unmount_below, wait_seconds

TREE_SECONDS = 1200
MIRROR_SECONDS = 20
# Lines of debootstrap that tell of work on the tree, not of downloads.
STEPS = ("I: Extracting", "I: Unpacking", "I: Configuring")
# A kill after which hardly a file is as it was synced would show little.
LEAST_UNCHANGED = 0.5


def mirror():
    """The mirror and the release of this system's packages, from apt's settings. Raises Skipped."""
    with open("/etc/os-release", encoding="utf-8") as file:
        settings = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    release = settings.get("VERSION_CODENAME", "").strip('"')
    words = require("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    lines = [line.split() for line in words.splitlines()]
    sites = [site for site, name, component in lines if name == release and component == "main"]
    if not release or not sites:
        raise Skipped(f"apt's settings name no mirror of {release or 'this release'}")
    address = f"{sites[0].rstrip('/')}/dists/{release}/Release"
    try:
        with urllib.request.urlopen(address, timeout=MIRROR_SECONDS) as answer:
            answer.read(1)
    except (OSError, urllib.error.URLError) as error:
        raise Skipped(f"the mirror can't be reached: {address}: {error}") from error
    return sites[0].rstrip("/"), release


def bootstrap_command(settings, directory):
    site, release = mirror()
    os.makedirs(settings.cache, mode=0o755, exist_ok=True)
    return ["debootstrap", "--variant=minbase", f"--cache-dir={settings.cache}", release, directory, site]


def bootstrap(trial, directory):
    """Makes the tree, and checks it by dpkg within it. What the program said."""
    status, words = call(*bootstrap_command(trial.settings, directory), seconds=TREE_SECONDS)
    if status:
        log = os.path.join(directory, "debootstrap/debootstrap.log")
        tail = ""
        if os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as file:
                tail = file.read()[-800:]
        raise Failed(f"debootstrap: status {status}: {words[-300:]} {tail}")
    judge_packages(directory)
    return words


def steps(words):
    return sum(line.startswith(STEPS) for line in words.splitlines())


def judge_packages(directory):
    """dpkg must find every package whole and every file with its checksum."""
    for question in ("--audit", "-V"):
        words = require("chroot", directory, "dpkg", question)
        if words:
            raise Failed(f"dpkg {question}: {words[:600]}")
    count = len(require("chroot", directory, "dpkg-query", "-W").splitlines())
    if count < 50:
        raise Failed(f"dpkg knows {count} packages only")


class Debian(Trial):
    NEEDS = ("debootstrap", "chroot", "apt-get")
    ROUNDS = 2
    SIZE = "1G"

    def prepare(self):
        """How many steps a whole run has, which the first round finds."""
        self.steps = None

    def tree(self):
        return f"{self.point}/tree"

    def round(self):
        if self.number == 0:
            self.make_whole()
        self.kill_in_the_middle()

    def make_whole(self):
        """A whole run; what vlinder shows of it, Linux must show, and dpkg must be content on both."""
        image = self.make_image("whole.img")
        self.open(image)
        began = time.monotonic()
        self.steps = steps(bootstrap(self, self.tree()))
        self.report |= {"bootstrap_seconds": round(time.monotonic() - began, 1), "steps": self.steps}
        seen = listing(self.point)
        self.unmount()
        self.open_mount(Linux(image, self.point))
        found = differences(seen, listing(self.point))
        if found:
            raise Failed(f"vlinder (first) and Linux (second) differ: {named(found)}")
        self.count("files_compared", len(seen))
        judge_packages(self.tree())
        self.unmount()
        os.unlink(image)

    def kill_in_the_middle(self):
        """Stops the program, lists what is there, syncs, kills the server: at once, or after the program went on."""
        self.open(self.make_image())
        command = bootstrap_command(self.settings, self.tree())
        with open(self.path("debootstrap.log"), "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wanted = self.random.randint(1, self.steps * 9 // 10)

        def is_so_far():
            if process.poll() is not None:
                raise Failed(f"debootstrap ended with {process.returncode} before the kill")
            with open(self.path("debootstrap.log"), encoding="utf-8", errors="replace") as log:
                return steps(log.read()) >= wanted

        wait_until(f"{wanted} steps of debootstrap", is_so_far, TREE_SECONDS)
        self.report.setdefault("kill_after_steps", []).append(wanted)
        self.stop_all()
        goes_on = self.number % 2 == 1
        if not goes_on:
            # The tree's /proc hides a directory, which would then differ.
            unmount_below(self.point)
        durable = listing(self.point)
        self.sync()
        if goes_on:
            send(descendants(besides=self.living()), signal.SIGCONT)
            wait_seconds(self.random, 0.1, 3)
            self.count("kills_while_it_went_on", int(process.poll() is None))
        unmount_below(self.point)
        self.crash()
        process.wait()
        self.count("files_synced", len(durable))
        for mount in self.replays():
            found = listing(self.point)
            lost, unchanged = lost_since(durable, found) if goes_on else (differences(durable, found), len(durable))
            if lost:
                raise Failed(f"after the replay of {mount.name}: {named(lost)}")
            if unchanged < len(durable) * LEAST_UNCHANGED:
                raise Failed(f"after the replay of {mount.name} only {unchanged} of {len(durable)} are as synced")
            self.count("files_as_synced", unchanged)
            self.go_on(mount)

    def stop_all(self):
        """Stops every process of the program; a process that was just made is stopped, too."""
        def all_are_stopped():
            running = [process for process in descendants(besides=self.living()) if state(process) not in "TtZX"]
            send(running, signal.SIGSTOP)
            return not running

        wait_until("every process of debootstrap stops", all_are_stopped)

    def go_on(self, mount):
        """The file system must be of use: a whole tree is made on it, where there was a part of one."""
        if mount.name != "vlinder":
            return
        shutil.rmtree(self.tree())
        bootstrap(self, self.tree())


def state(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
