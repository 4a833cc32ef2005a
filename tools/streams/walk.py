"""What a directory tree holds, as far as a stream carries it."""

import hashlib
import os
import stat


def content(path):
    """A hash of the bytes; holes are zeros, and a hole of a terabyte is not read."""
    digest, zeros = hashlib.blake2b(digest_size=16), 0
    with open(path, "rb") as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            file.seek(start)
            while start < end:
                piece = file.read(min(end - start, 4096 - start % 4096))
                if piece.strip(b"\0"):
                    digest.update(b"%d:" % start)
                    digest.update(piece)
                start += len(piece)
            at = end
    return f"{size}:{digest.hexdigest()}"


def look(path, relative, status):
    directory = stat.S_ISDIR(status.st_mode)
    facts = [relative, oct(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns]
    if not directory:
        facts += [status.st_nlink, status.st_size, status.st_rdev]
    if stat.S_ISLNK(status.st_mode):
        facts.append(os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        facts.append(content(path))
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        if name != "btrfs.compression":
            facts.append((name, os.getxattr(path, name, follow_symlinks=False)))
    return facts


def walk(root):
    """Facts by path. What stands where a nested subvolume lay (inode 2) does not travel."""
    found, waiting = {}, [("", root)]
    while waiting:
        relative, path = waiting.pop()
        status = os.lstat(path)
        if status.st_ino == 2:
            continue
        found[relative] = look(path, relative, status)
        if stat.S_ISDIR(status.st_mode):
            for name in os.listdir(path):
                waiting.append((f"{relative}/{name}", os.path.join(path, name)))
    return found


def blocks(root):
    """Blocks of 512 bytes that the files of a tree have."""
    total = 0
    for directory, _, names in os.walk(root):
        total += sum(os.lstat(os.path.join(directory, name)).st_blocks for name in names)
    return total


def difference(expected, found):
    """The first few lines in which two walks differ; none where they are equal."""
    lines = []
    for path in sorted(set(expected) | set(found)):
        one, other = expected.get(path), found.get(path)
        if one != other:
            lines.append(f"{path!r}:\n    expected {one}\n    found    {other}")
    return lines[:4]
