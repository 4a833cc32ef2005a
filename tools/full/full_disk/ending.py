"""The strict end that all workloads share.

The full state is unmounted, and a copy of the image must satisfy both checkers. vlinder mounts the image
again, deletes every snapshot, removes every file and directory, syncs, and unmounts once: nothing of that
may fail or be refused. Linux does the same with the copy; it may refuse to delete a subvolume as long as
files fill the disk, which is told, and tries again after them. Both checkers must accept what vlinder
left, and as much space must be free as on Linux.
"""

import errno
import os
from dataclasses import dataclass, field

from . import figures
from .systems import Linux, Vlinder, call, copy_sparse, is_mounted

# A pass ends after so many refusals: each may take the system a while.
MAX_REFUSED = 300
GONE = (errno.ENOTCONN, errno.ECONNABORTED)


@dataclass
class Emptying:
    """What one system did with the full state."""

    # Reasons of refused removals, with their number.
    refused: dict = field(default_factory=dict)
    # Commands that failed, and what the mount complained of.
    failed: list = field(default_factory=list)
    removed: int = 0
    deleted_subvolumes: int = 0
    left: int = 0
    space: figures.Space = None

    def note(self, what, result):
        if result.failed():
            self.failed.append(f"{what}: {result.short()}")

    def refuse(self, what, reason):
        self.refused[f"{what}: {reason}"] = self.refused.get(f"{what}: {reason}", 0) + 1

    def refusals(self):
        return sum(self.refused.values())

    def as_json(self):
        return {"removed": self.removed, "deleted_subvolumes": self.deleted_subvolumes,
                "refused": self.refused, "failed": self.failed, "left": self.left,
                "space": self.space and self.space.as_json()}

    def violations(self, system):
        """Sentences about everything that failed."""
        found = [f"{system}: {failure}" for failure in self.failed]
        if system != Linux.name:
            found += [f"{system}: {count} removals refused ({why})" for why, count in self.refused.items()]
        if self.left:
            found.append(f"{system}: {self.left} names are left")
        return found


def entries(point, subvolumes=()):
    """All paths below a mount point, without subvolumes, contents first: (path, is a directory)."""
    found = []

    def walk(directory):
        with os.scandir(os.path.join(point, directory)) as scan:
            listed = sorted(scan, key=lambda entry: entry.name)
        for entry in listed:
            path = os.path.join(directory, entry.name)
            if path in subvolumes:
                continue
            is_directory = entry.is_dir(follow_symlinks=False)
            if is_directory:
                walk(path)
            found.append((path, is_directory))

    walk("")
    return found


def remove_all(mount, emptying):
    """Removes all files and directories."""
    for path, is_directory in entries(mount.point, set(mount.subvolumes())):
        try:
            (os.rmdir if is_directory else os.unlink)(os.path.join(mount.point, path))
            emptying.removed += 1
        except OSError as error:
            # A directory stays because something in it was refused: the refusal is counted there.
            if error.errno == errno.ENOTEMPTY and emptying.refused:
                continue
            emptying.refuse("rmdir" if is_directory else "unlink", error.strerror)
            if error.errno in GONE or emptying.refusals() >= MAX_REFUSED:
                break


def delete_subvolumes(mount, emptying):
    """Deletes all subvolumes and snapshots."""
    for path in mount.subvolumes():
        done = mount.delete_subvolume(path)
        if done.failed():
            emptying.refuse("subvolume delete", done.text.replace(mount.point, "")[-200:])
        else:
            emptying.deleted_subvolumes += 1


def empty(mount, emptying):
    """Deletes all subvolumes, then everything else, then syncs."""
    delete_subvolumes(mount, emptying)
    remove_all(mount, emptying)
    if isinstance(mount, Linux):
        if emptying.refused:
            emptying.note("sync before a second try", mount.sync())
            delete_subvolumes(mount, emptying)
            remove_all(mount, emptying)
        emptying.note("waiting for deleted subvolumes", mount.wait_for_deleted_subvolumes())
    emptying.note("sync after emptying", mount.sync())
    emptying.left = len(entries(mount.point))


def unmount_once(mount, what):
    """One unmount; where it fails, the mount is taken away otherwise. Gives sentences."""
    done = mount.unmount()
    found = [f"{what}: {done.short()}"] if done.failed() else []
    found += mount.complaints()
    mount.drop()
    return found


def empty_once(mount):
    """Mounts, empties and unmounts; an error of a call that should not fail counts as a failure."""
    emptying = Emptying()
    try:
        mount.open()
        empty(mount, emptying)
    except (OSError, RuntimeError) as error:
        emptying.failed.append(f"{type(error).__name__}: {error}")
    if is_mounted(mount.point):
        emptying.failed += unmount_once(mount, "the one unmount after emptying")
    try:
        emptying.space = figures.read_space(mount.image)
    except RuntimeError as error:
        emptying.failed.append(str(error))
    return emptying


def check(vlinder, image, state):
    """What the two checkers object to."""
    found = []
    for command in ([vlinder, "check"], ["btrfs", "check", "--readonly"]):
        done = call(*command, image)
        if done.failed():
            name = f"{os.path.basename(command[0])} check"
            found.append(f"{name} of the {state} image: {done.short()}")
    return found


def leave_full(run, mount):
    """Ends the mount of the workload."""
    synced = mount.sync()
    run.report["full_sync"] = synced.short()
    run.report["full_metadata"] = mount.metadata()
    run.violations += unmount_once(mount, "unmount of the full state")
    run.report["background_failures"] = mount.background_failures()


def end(run, image):
    """From the unmounted full image on. Violations and figures go to `run`."""
    copy = run.path("linux.img")
    copy_sparse(image, copy)
    findings = check(run.vlinder, copy, "full")
    run.violations += findings
    own = empty_once(run.adopt(Vlinder(run.vlinder, image, run.path("emptied"), run.options)))
    run.violations += own.violations("vlinder")
    run.violations += check(run.vlinder, image, "emptied")
    run.report["vlinder"] = own.as_json()
    if findings:
        run.violations.append("Linux was not asked: the full image is not clean")
        return
    linux = empty_once(run.adopt(Linux(copy, run.path("linux"), run.options)))
    run.report["linux"] = linux.as_json()
    # What Linux can't empty fails the run as well: the image that vlinder leaves must be enough for it.
    run.violations += linux.violations("linux")
    if own.space and linux.space:
        run.violations += figures.missing_space(own.space, linux.space)
