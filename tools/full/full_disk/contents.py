"""What the files of a full state must be: names and sizes as one system lists them, contents as writers know.

A file counts as *told* when a workload created, wrote and closed it without an error, and a later sync
succeeded. Such a file must have its contents on every system that mounts a copy of that state.
"""

import hashlib
import os
import stat

DIGEST_BYTES = 16
READ_BYTES = 1 << 20
# So many differences are named; the rest is counted.
MAX_NAMED = 5


def digest(content):
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def digest_of_file(path):
    """The size and the digest of a file. Raises OSError."""
    hasher, size = hashlib.blake2b(digest_size=DIGEST_BYTES), 0
    with open(path, "rb", buffering=0) as file:
        while part := file.read(READ_BYTES):
            hasher.update(part)
            size += len(part)
    return size, hasher.digest()


class Record:
    """What one file holds. Its hard links share the record."""

    PENDING, DURABLE, DOUBTFUL = range(3)

    def __init__(self, size, content_digest):
        self.size, self.digest = size, content_digest
        self.state = self.PENDING
        self.is_known = True

    def copied(self):
        copy = Record(self.size, self.digest)
        copy.state = self.state
        return copy


class Manifest:
    """Paths below the mount point, with what each file must hold."""

    def __init__(self):
        self.records, self.snapshots = {}, set()

    def store(self, path, content):
        self.records[path] = Record(len(content), digest(content))

    def store_digest(self, path, size, content_digest):
        self.records[path] = Record(size, content_digest)

    def link(self, old, new):
        if old in self.records:
            self.records[new] = self.records[old]

    def rename(self, old, new):
        self.remove(new)
        if old in self.records:
            self.records[new] = self.records.pop(old)

    def remove(self, path):
        self.records.pop(path, None)

    def remove_snapshot(self, name):
        self.snapshots.discard(name)
        for path in [path for path in self.records if path.startswith(f"{name}/")]:
            del self.records[path]

    def touch(self, path):
        """A change of the contents begins: nothing is known of them any more, under no name."""
        if path in self.records:
            self.records[path].is_known = False

    def snapshot(self, name):
        """A snapshot of the whole was taken without an error: it holds the same files, and all are durable.

        A file whose sync failed before may lack bytes, and stays doubtful."""
        self.settle(True)
        copied = {f"{name}/{path}": record.copied() for path, record in self.records.items()
                  if record.is_known and not self.is_in_snapshot(path)}
        self.records.update(copied)
        self.snapshots.add(name)

    def is_in_snapshot(self, path):
        return path.split("/", 1)[0] in self.snapshots

    def settle(self, is_durable):
        """A sync ended: what was written before is durable, or in doubt if the sync failed."""
        state = Record.DURABLE if is_durable else Record.DOUBTFUL
        for record in self.records.values():
            if record.state == Record.PENDING:
                record.state = state

    def compare(self, point):
        """Compares a mount with what was told. Gives sentences and figures."""
        figures, differing = {"told": 0, "doubtful": 0, "doubtful_differ": 0, "differ": 0}, []
        for path, record in self.records.items():
            if not record.is_known or record.state == Record.PENDING:
                continue
            is_told = record.state == Record.DURABLE
            figures["told" if is_told else "doubtful"] += 1
            difference = difference_of(os.path.join(point, path), record)
            if difference:
                figures["differ" if is_told else "doubtful_differ"] += 1
                if is_told:
                    differing.append(f"{path} {difference}")
        return shortened("files that were told to be stored differ", differing), figures


def difference_of(path, record):
    """How a file differs from its record, in a few words, or nothing."""
    try:
        size, content_digest = digest_of_file(path)
    except OSError as error:
        return error.strerror
    if size != record.size:
        return f"has {size} bytes instead of {record.size}"
    return "" if content_digest == record.digest else "has other bytes"


def shortened(what, all_found):
    """One sentence about many findings."""
    if not all_found:
        return []
    return [f"{len(all_found)} {what}: {'; '.join(all_found[:MAX_NAMED])}"]


def listing(point):
    """Every path below a mount point, in subvolumes too: mode, size, number of links. Raises OSError."""
    found, directories = {}, [""]
    while directories:
        directory = directories.pop()
        with os.scandir(os.path.join(point, directory)) as scan:
            for entry in scan:
                path, told = os.path.join(directory, entry.name), entry.stat(follow_symlinks=False)
                found[path] = (told.st_mode, told.st_size, told.st_nlink)
                if stat.S_ISDIR(told.st_mode):
                    directories.append(path)
    return found


def compare_listings(own, peer):
    """Sentences about what two systems list differently for one state."""
    missing = sorted(own.keys() - peer.keys())
    more = sorted(peer.keys() - own.keys())
    differing = [path for path, told in own.items() if peer.get(path, told) != told]
    # The kernel keeps the size of a file whose bytes a close or a sync refused.
    larger = [path for path in differing if is_only_larger(own[path], peer[path])]
    other = sorted(set(differing) - set(larger))
    told = {path: f"{path} {own[path]} {peer[path]}" for path in differing}
    return [*shortened("names that vlinder lists are not there on Linux", missing),
            *shortened("names that Linux lists are not there on vlinder", more),
            *shortened("files show more bytes on the running mount than the disk has (vlinder, Linux)",
                       [told[path] for path in sorted(larger)]),
            *shortened("files have another mode, size or number of links (vlinder, Linux)",
                       [told[path] for path in other])]


def is_only_larger(own, peer):
    """Whether two entries of a listing differ in nothing but a larger size of the first."""
    mode, size, links = own
    return (mode, links) == (peer[0], peer[2]) and size > peer[1]
