"""Emptying a full file system: what one system did, what it refused, and what of that is a violation."""

import errno
import os
from dataclasses import dataclass, field

from . import figures
from .systems import GOES_ON, Linux, is_mounted

# A pass ends after so many refusals: each may take the system a while.
MAX_REFUSED = 300
# So many files are unlinked first, while every snapshot is still there.
FIRST_FILES = 300
GONE = (errno.ENOTCONN, errno.ECONNABORTED)
# What a system says that has aborted.
ABORTED = tuple(os.strerror(number) for number in (errno.EROFS, errno.EIO))


@dataclass
class Emptying:
    """What one system did with the full state."""

    # Reasons of refused removals, with their number; of the files that were unlinked first, apart.
    refused: dict = field(default_factory=dict)
    first_refused: dict = field(default_factory=dict)
    # Commands that failed, and what the mount complained of.
    failed: list = field(default_factory=list)
    removed: int = 0
    deleted_subvolumes: int = 0
    left: int = 0
    # What was still being freed in the background.
    unfinished: str = ""
    gauges: dict = field(default_factory=dict)
    space: figures.Space = None

    def note(self, what, result):
        if result.failed():
            self.failed.append(f"{what}: {result.short()}")

    def refuse(self, what, reason):
        self.refused[f"{what}: {reason}"] = self.refused.get(f"{what}: {reason}", 0) + 1

    def refuse_first(self, reason):
        self.first_refused[reason] = self.first_refused.get(reason, 0) + 1

    def refusals(self):
        return sum(self.refused.values())

    def as_json(self):
        return {"removed": self.removed, "deleted_subvolumes": self.deleted_subvolumes,
                "first_refused": self.first_refused, "refused": self.refused, "failed": self.failed,
                "left": self.left, "unfinished": self.unfinished, "gauges": self.gauges, "space": self.space and self.space.as_json()}

    def violations(self, who, is_linux=False):
        """Sentences about everything that failed.

        Linux may refuse a removal and do it later; only its refusals after an abort count. Whether names that it left are a
        violation, the judge says."""
        found = [f"{who}: {failure}" for failure in self.failed]
        for why, count in self.refused.items():
            if not is_linux or any(sign in why for sign in ABORTED):
                found.append(f"{who}: {count} removals refused ({why})")
        for why, count in self.first_refused.items():
            if why in ABORTED:
                found.append(f"{who}: {count} first removals refused ({why})")
        if self.left and not is_linux:
            found.append(f"{who}: {self.left} names are left")
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


def remove_first(mount, emptying):
    """Unlinks some files while the snapshots are there, which costs the most space."""
    files = [path for path, is_directory in entries(mount.point, set(mount.subvolumes())) if not is_directory]
    for path in files[:FIRST_FILES]:
        try:
            os.unlink(os.path.join(mount.point, path))
            emptying.removed += 1
        except OSError as error:
            emptying.refuse_first(error.strerror)
            if error.errno in GONE:
                break


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
    """Unlinks some files, deletes all subvolumes, then everything else, then syncs."""
    remove_first(mount, emptying)
    delete_subvolumes(mount, emptying)
    remove_all(mount, emptying)
    if isinstance(mount, Linux):
        if emptying.refused:
            emptying.note("sync before a second try", mount.sync())
            delete_subvolumes(mount, emptying)
            remove_all(mount, emptying)
    # Both systems free the blocks of a deleted subvolume in the background, and go on with that at the next mount.
    waited = mount.wait_for_deleted_subvolumes()
    emptying.note("waiting for deleted subvolumes", waited)
    if waited.text.startswith(GOES_ON):
        emptying.unfinished = waited.text
    emptying.note("sync after emptying", mount.sync())
    emptying.left = len(entries(mount.point))


def unmount_once(mount, what):
    """One unmount; where it fails, the mount is taken away otherwise. Gives sentences."""
    done = mount.unmount()
    found = [f"{what}: {done.short()}"] if done.failed() else []
    found += mount.complaints()
    mount.drop()
    return found


def empty_mounted(mount):
    """Empties and unmounts; an error of a call that should not fail counts as a failure."""
    emptying = Emptying()
    try:
        empty(mount, emptying)
    except (OSError, RuntimeError) as error:
        emptying.failed.append(f"{type(error).__name__}: {error}")
    if is_mounted(mount.point):
        emptying.gauges = mount.gauges()
        emptying.failed += mount.broken_promises(emptying.gauges)
        emptying.failed += unmount_once(mount, "the one unmount after emptying")
    try:
        emptying.space = figures.read_space(mount.image)
    except RuntimeError as error:
        emptying.failed.append(str(error))
    return emptying
