"""What one system shows of a whole file system: names, kinds, sizes, links, owners, attributes and bytes."""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass, replace

DIGEST_BYTES = 16
READ_BYTES = 1 << 20
# So many findings are named; the rest is counted.
MAX_NAMED = 5


def digest(content):
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


class OpenedToRead:
    """A file that is read and closed. Its close may tell that there was no space.

    FUSE's kernel hands a write-back that failed to whoever closes the file next (`fuse_flush` in
    fs/fuse/file.c), readers included."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        try:
            os.close(self.file)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def digest_of_file(path):
    """The size and the digest of a file. Raises OSError."""
    hasher, size = hashlib.blake2b(digest_size=DIGEST_BYTES), 0
    with OpenedToRead(path) as file:
        while part := os.read(file, READ_BYTES):
            hasher.update(part)
            size += len(part)
    return size, hasher.digest()


def attributes_of(path):
    """The digests of all extended attributes by their names. Raises OSError."""
    return {name: digest(os.getxattr(path, name, follow_symlinks=False))
            for name in os.listxattr(path, follow_symlinks=False)}


@dataclass
class Shown:
    """What a system shows of one path."""

    mode: int
    size: int
    links: int
    owner: tuple
    attributes: dict
    # Of a file's bytes or a symbolic link's target.
    content: bytes

    def has_more_or_other_bytes_than(self, peer):
        """Whether they differ in bytes alone, of which this one has at least as many."""
        return self.size >= peer.size and replace(self, size=peer.size, content=peer.content) == peer

    def differences(self, peer):
        """The names of what differs, with the values that a reader understands."""
        found = []
        for name in vars(self):
            own, other = getattr(self, name), getattr(peer, name)
            if own != other:
                is_digest = name in ("content", "attributes")
                found.append(f"other {name}" if is_digest else f"{name} {own} and {other}")
        return ", ".join(found)


def show(path, found, contents):
    """What is to be seen of a path. Raises OSError.

    A file with several names is read under the first: `contents` has what was read, by device and inode."""
    content = b""
    if stat.S_ISREG(found.st_mode):
        identity = found.st_dev, found.st_ino
        content = contents.get(identity)
        if content is None:
            _, content = digest_of_file(path)
        if found.st_nlink > 1:
            contents[identity] = content
    elif stat.S_ISLNK(found.st_mode):
        content = os.readlink(os.fsencode(path))
    return Shown(found.st_mode, found.st_size, found.st_nlink, (found.st_uid, found.st_gid),
                 attributes_of(path), content)


def listing(point):
    """Every path below a mount point, in subvolumes too, with what is shown of it. Raises OSError."""
    found, contents, directories = {}, {}, [""]
    while directories:
        directory = directories.pop()
        with os.scandir(os.path.join(point, directory)) as scan:
            for entry in scan:
                path, told = os.path.join(directory, entry.name), entry.stat(follow_symlinks=False)
                # A mount by vlinder shows files of several subvolumes under one device: each lies under a name of the top.
                top = path.partition("/")[0]
                found[path] = show(entry.path, told, contents.setdefault(top, {}))
                if stat.S_ISDIR(told.st_mode):
                    directories.append(path)
    return found


def larger_paths(own, peer):
    """The paths that one system shows as larger than the other."""
    return [path for path, shown in own.items() if path in peer and shown.size > peer[path].size]


def show_again(point, paths):
    """What is to be seen of these paths now. Raises OSError."""
    return {path: show(os.path.join(point, path), os.lstat(os.path.join(point, path)), {}) for path in paths}


def shortened(what, all_found):
    """One sentence about many findings."""
    if not all_found:
        return []
    return [f"{len(all_found)} {what}: {'; '.join(all_found[:MAX_NAMED])}"]


def count_differing_bytes(path, peer):
    """How many bytes of a file differ from one that is not larger, and is continued with zeros.

    Raises OSError."""
    count = 0
    with open(path, "rb") as own_file, open(peer, "rb") as peer_file:
        while part := own_file.read(READ_BYTES):
            other = peer_file.read(READ_BYTES)
            other += bytes(len(part) - len(other))
            if part != other:
                count += sum(map(int.__ne__, part, other))
    return count


@dataclass
class Held:
    """Bytes that a running mount still holds, because its disk has no room: their writers were told.

    The mount shows them, the disk does not. They explain no more differing bytes than they are."""

    byte_count: int
    point: str
    peer_point: str

    def explain(self, own, peer, differing):
        """The differing paths that they explain. Raises OSError."""
        candidates, seen, total = set(), set(), 0
        for path in differing:
            if not own[path].has_more_or_other_bytes_than(peer[path]):
                continue
            candidates.add(path)
            # Names of one file are counted once.
            contents = own[path].content, peer[path].content
            if contents not in seen:
                total += count_differing_bytes(os.path.join(self.point, path),
                                               os.path.join(self.peer_point, path))
            seen.add(contents)
        return candidates if total <= self.byte_count else set()


def compare_listings(own, peer, held):
    """Sentences about what two systems show differently of one state. Raises OSError."""
    missing = sorted(own.keys() - peer.keys())
    more = sorted(peer.keys() - own.keys())
    differing = {path for path, shown in own.items() if peer.get(path, shown) != shown}
    differing -= held.explain(own, peer, differing) if held else set()
    told = {path: f"{path}: {own[path].differences(peer[path])}" for path in differing}
    return [*shortened("names that vlinder lists are not there on Linux", missing),
            *shortened("names that Linux lists are not there on vlinder", more),
            *shortened("files differ (vlinder, Linux)", [told[path] for path in sorted(differing)])]
