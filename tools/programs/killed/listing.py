"""What a tree holds, so that two systems and two moments can be compared."""

import hashlib
import os
import stat
from dataclasses import dataclass, replace

# A difference names so many paths.
MOST_NAMED = 5


@dataclass(frozen=True)
class Entry:
    """What one name leads to. The access time is left out, since looking changes it."""

    inode: int
    mode: int
    owner: tuple
    links: int
    size: int
    device: int
    modified_ns: int
    changed_ns: int
    attributes: tuple
    content: bytes


def content_of(path, status):
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return b""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def entry(path):
    status = os.lstat(path)
    names = sorted(os.listxattr(path, follow_symlinks=False))
    attributes = tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)
    return Entry(status.st_ino, status.st_mode, (status.st_uid, status.st_gid), status.st_nlink, status.st_size,
                 status.st_rdev, status.st_mtime_ns, status.st_ctime_ns, attributes, content_of(path, status))


def listing(top):
    """Every path below a directory, the directory itself as ".", with what it leads to. Other mounts are left out."""
    found, device = {".": entry(top)}, os.lstat(top).st_dev
    for directory, names, files in os.walk(top, onerror=raise_error):
        foreign = {name for name in names + files if os.lstat(os.path.join(directory, name)).st_dev != device}
        for name in set(names + files) - foreign:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, top)] = entry(path)
        names[:] = [name for name in names if name not in foreign]
    return found


def raise_error(error):
    raise error


def differences(one, other):
    """Sentences about what two listings do not have in common."""
    found = []
    for path in sorted(one.keys() | other.keys()):
        if path not in one or path not in other:
            found.append(f"{path} is only in the {'first' if path in one else 'second'}")
        elif one[path] != other[path]:
            mine, its = vars(one[path]), vars(other[path])
            parts = [f"{name} {short(mine[name])} and {short(its[name])}" for name in mine if mine[name] != its[name]]
            found.append(f"{path}: {', '.join(parts)}")
    return found


def without_replay_times(found, killed_ns):
    """The listing with one time in place of every time after the kill.

    A replay that removes a name stamps its inode with the present time, which two replays do not have in common. That
    both stamp the same inodes is still compared.
    """
    def settled(time_ns):
        return min(time_ns, killed_ns)

    return {path: replace(entry, modified_ns=settled(entry.modified_ns), changed_ns=settled(entry.changed_ns))
            for path, entry in found.items()}


def short(value):
    return value.hex()[:16] if isinstance(value, bytes) else str(value)[:200]


def named(found):
    """The first differences, and how many there are."""
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return "; ".join(found[:MOST_NAMED]) + more


def lost_since(durable, found):
    """Sentences about what a listing taken before a sync has and a later one lacks, and how much is as it was.

    What the program changed after the sync is no loss, and has a later change time: the file itself, wherever it was
    renamed to, or, where it was removed, its directory. One thing needs no later time: the replay of an fsync log gives
    a directory the names of files that were synced, and leaves its times, on Linux too.
    """
    newest = max(entry.changed_ns for entry in durable.values())
    later = {entry.inode for entry in found.values() if entry.changed_ns > newest}
    lost, unchanged = [], 0
    for path, before in durable.items():
        if path not in found:
            if before.inode not in later and found[nearest(path, found)].inode not in later:
                lost.append(f"{path} is missing and was not removed later")
        elif found[path] == before:
            unchanged += 1
        elif found[path].inode not in later and not has_other_names(path, durable, found):
            lost.append(f"{path} differs and was not changed later: {differences({path: before}, {path: found[path]})}")
    return lost, unchanged


def nearest(path, found):
    """The nearest directory above that is there."""
    above = os.path.dirname(path) or "."
    while above not in found:
        above = os.path.dirname(above) or "."
    return above


def has_other_names(path, one, other):
    """Whether a directory differs in its names and in what follows from them, and in nothing else."""
    names = [{name for name in listed if (os.path.dirname(name) or ".") == path} for listed in (one, other)]
    alike = [replace(listed[path], size=0, links=0) for listed in (one, other)]
    return stat.S_ISDIR(one[path].mode) and names[0] != names[1] and alike[0] == alike[1]
