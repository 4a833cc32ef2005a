"""The strict end that all workloads share.

1. The running mount that filled the disk syncs. Nothing was read-only, no reservation was too small.
2. Its image is copied as the last commit left it. Both checkers must accept the copy. Linux mounts one
   copy for reading only: it must show what the running mount shows (names, bytes, attributes), and what
   was told to be stored must be there. vlinder and Linux each take a snapshot of a copy; vlinder may
   refuse what Linux refuses.
3. The running mount, a mount of a copy by vlinder, and a mount of a copy by Linux are each emptied: some
   files first, beside the snapshots, then every snapshot, every file and directory; sync; one unmount.
   Nothing of that may fail on vlinder or be refused. Linux may refuse to delete a subvolume as long as
   files fill the disk, which is told, and tries again after them. Of the files that are unlinked first,
   vlinder may refuse no more than Linux.
4. Both checkers must accept what vlinder left, and as much space must be free as on Linux.
5. What vlinder left when the disk was full must be enough for Linux to empty it. Where Linux leaves names, the
   same workload runs on Linux's own file system: if Linux empties that, the run fails.
"""

import os

from . import figures, listings
from .emptying import Emptying, empty_mounted, unmount_once
from .systems import Linux, Vlinder, call, copy_sparse, generation

RUNNING, REMOUNT, BOTH = "running", "remount", "both"
WAYS = (BOTH, RUNNING, REMOUNT)
# A commit in the background may come between: the copy is made again.
COPY_TRIES = 5
NO_SPACE = "o space left"


def check(vlinder, image, state):
    """What the two checkers object to."""
    found = []
    for command in ([vlinder, "check"], ["btrfs", "check", "--readonly"]):
        done = call(*command, image)
        if done.failed():
            name = f"{os.path.basename(command[0])} check"
            found.append(f"{name} of the {state} image: {done.short()}")
    return found


PAGES, INODES = "1", "2"


def drop_cached(what):
    """Has the kernel forget the bytes of files or the files themselves, so that the server is asked."""
    with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as file:
        file.write(what)


class Judge:
    """From the end of the workload on. Violations and figures go to the run."""

    def __init__(self, run, image):
        self.run, self.image = run, image
        self.listed, self.is_synced, self.linux_is_able = None, True, False
        self.emptied = {}

    def found(self, sentences):
        self.run.violations += sentences

    def path(self, name):
        return self.run.path(name)

    def sync(self, mount):
        """Syncs the full state.

        A sync tells an error of earlier writes once, which is right where a mapping's page found no room.
        A second error in a row is about nothing new."""
        first = mount.sync()
        self.run.report["full_sync"] = first.short()
        self.run.manifest.settle(not first.failed())
        if not first.failed():
            return
        if NO_SPACE not in first.text:
            self.found([f"sync of the full state: {first.short()}"])
        second = mount.sync()
        self.run.report["full_sync_again"] = second.short()
        if second.failed():
            self.is_synced = False
            self.found([f"sync of the full state, twice in a row: {second.short()}"])

    def settle(self, mount):
        """Syncs the mount that filled the disk, and asks what it has to say."""
        self.sync(mount)
        report = self.run.report
        report["full_metadata"] = mount.metadata()
        report["gauges"] = mount.gauges()
        report["background_failures"] = mount.background_failures()
        report["held_bytes"] = mount.held_bytes()
        self.found(mount.broken_promises(report["gauges"]))
        self.found(f"the full state, {complaint}" for complaint in mount.complaints())
        try:
            # Pages whose bytes were refused are not on the disk.
            drop_cached(PAGES)
            self.listed = listings.listing(mount.point)
        except OSError as error:
            self.found([f"listing the full state: {error}"])

    def copy(self, target):
        """Copies the image as its last commit left it, while something may have it mounted."""
        for _ in range(COPY_TRIES):
            before = generation(self.image)
            copy_sparse(self.image, target)
            if generation(self.image) == before == generation(target):
                return
        raise RuntimeError(f"commits went on during each of {COPY_TRIES} copies of the idle full image")

    def inspect(self, copy):
        """Linux reads the copy; nothing changes in it."""
        linux = self.run.adopt(Linux(copy, self.path("inspected"), "ro"))
        try:
            linux.open()
            if self.listed is not None and self.is_synced:
                peer = listings.listing(linux.point)
                self.look_again(listings.larger_paths(self.listed, peer))
                self.found(listings.compare_listings(self.listed, peer, self.held(linux)))
            found, self.run.report["contents"] = self.run.manifest.compare(linux.point)
            self.found(found)
            self.found(unmount_once(linux, "unmount of Linux that only read"))
        except (OSError, RuntimeError) as error:
            self.found([f"Linux reading the full image: {error}"])
        finally:
            linux.drop()

    def look_again(self, larger):
        """The kernel keeps the size of a file whose bytes were refused: the server is asked for its own.

        How many files that concerned is told."""
        if larger and "held_bytes" in self.run.report and self.run.mounts[0].is_open:
            drop_cached(INODES)
            shown = listings.show_again(self.run.mounts[0].point, larger)
            self.run.report["kept_sizes"] = sum(shown[path].size != self.listed[path].size for path in larger)
            self.listed.update(shown)

    def held(self, peer):
        """What the running mount still holds in memory, if it is the one that was listed."""
        byte_count = self.run.report.get("held_bytes", 0)
        running = self.run.mounts[0]
        return listings.Held(byte_count, running.point, peer.point) if byte_count and running.is_open else None

    def empty(self, name, mount):
        """Opens the mount if need be, empties it, and judges what vlinder left."""
        try:
            if not mount.is_open:
                mount.open()
            emptying = empty_mounted(mount)
        except RuntimeError as error:
            emptying = Emptying(failed=[str(error)])
        is_linux = isinstance(mount, Linux)
        self.found(emptying.violations(name, is_linux))
        if not is_linux:
            self.found(check(self.run.vlinder, mount.image, f"emptied ({name})"))
        self.run.report[name] = emptying.as_json()
        self.emptied[name] = emptying

    def unmount_full(self, mount):
        """The full state must unmount at the first try, too. Lists it if nothing has listed it yet."""
        try:
            mount.open()
            if self.listed is None:
                self.listed = listings.listing(mount.point)
            self.found(unmount_once(mount, "unmount of the full state"))
        except (OSError, RuntimeError) as error:
            self.found([f"mounting the full state: {error}"])

    def compare(self):
        """What vlinder may not do worse than Linux."""
        linux = self.emptied.get("linux", Emptying())
        for name in (RUNNING, REMOUNT):
            own = self.emptied.get(name)
            if not own:
                continue
            refused, by_linux = sum(own.first_refused.values()), sum(linux.first_refused.values())
            if refused > by_linux:
                self.found([f"{name}: {refused} first removals refused, {by_linux} by Linux "
                            f"({', '.join(own.first_refused)})"])
            if own.space and linux.space:
                missing = figures.missing_space(own.space, linux.space)
                self.found(f"{name}: {sentence}" for sentence in missing)

    def judge_names_left_by_linux(self):
        """Names that Linux can't remove are a violation unless it can't do better on a disk that it filled itself."""
        left = self.emptied.get("linux", Emptying()).left
        if not left:
            return
        own_fill = self.run.left_by_linux_alone()
        self.run.report["left_by_linux_alone"] = own_fill
        if not own_fill:
            self.found([f"linux: {left} names are left, {own_fill} where it filled the disk itself"])

    def take_snapshot(self, mount):
        """Takes a snapshot of the full state, on a copy of its own. Gives what it ended with."""
        self.copy(mount.image)
        try:
            mount.open()
            taken = mount.snapshot("taken-when-full")
            if not taken.failed():
                taken = mount.sync()
            self.found(unmount_once(mount, f"{mount.name}: unmount after a snapshot of the full state"))
            return taken
        finally:
            mount.drop()
            os.remove(mount.image)

    def compare_snapshots(self):
        """A snapshot that vlinder refused, now or in the workload, Linux must refuse, too."""
        copy, run = self.path("snapshotted.img"), self.run
        try:
            vlinder = Vlinder(run.vlinder, copy, self.path("snapshot"), run.options)
            own = self.take_snapshot(run.adopt(vlinder))
            run.report["full_snapshot"] = {"vlinder": own.short()}
            if not own.failed() and not run.is_snapshot_refused:
                return
            taken = self.take_snapshot(run.adopt(Linux(copy, self.path("linux-snapshot"), run.options)))
            run.report["full_snapshot"]["linux"] = taken.short()
            if not taken.failed():
                self.found(["vlinder refused a snapshot that Linux takes of the same state"])
        except RuntimeError as error:
            self.found([f"a snapshot of the full state: {error}"])

    def judge(self, mount):
        """`mount` is the running one that filled the disk, or None."""
        way = self.run.arguments.empty if mount else REMOUNT
        if mount:
            self.settle(mount)
            if way == REMOUNT:
                self.found(unmount_once(mount, "unmount of the full state"))
                if self.run.report.get("held_bytes"):
                    # What had no room was lost with the mount, as its writers were told.
                    self.listed = None
        for_linux, for_vlinder = self.path("linux.img"), self.path("remount.img")
        self.copy(for_linux)
        if self.run.arguments.keep:
            copy_sparse(for_linux, self.path("full.img"))
        findings = check(self.run.vlinder, for_linux, "full")
        self.found(findings)
        if way != RUNNING:
            copy_sparse(for_linux, for_vlinder)
            remounted = self.run.adopt(Vlinder(self.run.vlinder, for_vlinder, self.path("remounted"),
                                               self.run.options))
            self.unmount_full(remounted)
        if findings:
            self.found(["Linux was not asked: the full image is not clean"])
        else:
            self.inspect(for_linux)
            self.compare_snapshots()
        if way != REMOUNT:
            self.empty(RUNNING, mount)
        if way != RUNNING:
            self.empty(REMOUNT, remounted)
        if not findings:
            self.empty("linux", self.run.adopt(Linux(for_linux, self.path("linux"), self.run.options)))
        self.compare()
        self.judge_names_left_by_linux()


def judge_linux_alone(run, mount):
    """The end of a workload on Linux's own file system: what it did, told for comparing by hand."""
    report = run.report
    report["full_sync"] = mount.sync().short()
    report["full_metadata"] = mount.metadata()
    report["aborted"] = mount.complaints()
    emptied = empty_mounted(mount)
    report["linux"] = emptied.as_json()
    report["aborted"] += [text for text in emptied.failed if "read-only" in text]
