"""A file of many extents of one sector each."""

import hashlib
import os

from .listings import READ_BYTES
from .records import Record

ZERO_SECTOR = bytes(4096)
SECTOR_BYTES = len(ZERO_SECTOR)
# The distance of the scattered extents in their file: each is an extent of its own.
STRIDE_BYTES = 2 * SECTOR_BYTES


def sector(index, version):
    """The bytes of a scattered sector: none is equal to another, nor to its earlier versions."""
    return hashlib.shake_128(f"{index} {version}".encode()).digest(SECTOR_BYTES)


class Scattered(Record):
    """A file of extents of one sector each, with holes between them.

    Of each sector it knows the versions that may be found: one, or several after a failed sync."""

    HOLE = -1

    def __init__(self, count):
        super().__init__()
        self.count, self.versions = count, {}
        self.unsynced = {}

    def allowed(self, index):
        return self.versions.get(index, (self.HOLE,))

    def next_version(self, index):
        return max((*self.allowed(index), *self.unsynced.get(index, ()))) + 1

    def write(self, index, version):
        """A write that was told is accepted, and is not synced yet."""
        self.begin_change()
        self.unsynced[index] = (*self.unsynced.get(index, ()), version)

    def sync(self, is_done):
        """A sync of the file ended. After a failed one every version since the last may be found."""
        for index, versions in self.unsynced.items():
            self.versions[index] = versions[-1:] if is_done else (*self.allowed(index), *versions)
        self.unsynced = {}

    def copied_contents(self):
        copy = Scattered(self.count)
        newest = {index: versions[-1:] for index, versions in self.unsynced.items()}
        copy.versions = {**self.versions, **newest}
        return copy

    def is_allowed(self, index, content):
        return any(content == (ZERO_SECTOR if version == self.HOLE else sector(index, version))
                   for version in self.allowed(index))

    def difference_of_contents(self, path):
        """Looks at the sectors and at the holes between them."""
        found = os.stat(path).st_size
        if found != self.count * STRIDE_BYTES:
            return f"has {found} bytes instead of {self.count * STRIDE_BYTES}"
        index = 0
        with open(path, "rb") as file:
            while part := file.read(READ_BYTES):
                for at in range(0, len(part), STRIDE_BYTES):
                    if not self.is_allowed(index, part[at:at + SECTOR_BYTES]):
                        return f"has other bytes in extent {index}"
                    if part[at + SECTOR_BYTES:at + STRIDE_BYTES] != ZERO_SECTOR:
                        return f"has bytes in the hole behind extent {index}"
                    index += 1
        return ""
