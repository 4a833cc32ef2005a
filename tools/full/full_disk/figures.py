"""Free space of an unmounted image, read by btrfs-progs, and how much of it may be missing."""

import re
from dataclasses import asdict, dataclass

from .systems import call

MEBIBYTE = 1 << 20
CHUNK = re.compile(
    r"item \d+ key \(FIRST_CHUNK_TREE CHUNK_ITEM (\d+)\)(.*?)(?=\n\titem |\Z)", re.DOTALL)


@dataclass
class Space:
    """Bytes of an image with one device."""

    used_bytes: int
    unallocated_bytes: int
    # On the device, all copies: of the largest chunk of metadata.
    metadata_chunk_bytes: int

    def as_json(self):
        return asdict(self)


def read_space(image):
    """The figures of an image that nothing has mounted. Raises RuntimeError."""
    superblock = call("btrfs", "inspect-internal", "dump-super", image)
    chunks = call("btrfs", "inspect-internal", "dump-tree", "-t", "chunk", image)
    if superblock.failed() or chunks.failed():
        raise RuntimeError(f"{image} can't be read: {superblock.text[-200:]} {chunks.text[-200:]}")
    words = [line.split(None, 1) for line in superblock.text.splitlines()]
    field = dict(pair for pair in words if len(pair) == 2)
    unallocated = int(field["dev_item.total_bytes"]) - int(field["dev_item.bytes_used"])
    return Space(int(field["bytes_used"]), unallocated, largest_metadata_chunk(chunks.text))


def largest_metadata_chunk(tree):
    """From the text of `dump-tree -t chunk`."""
    largest = 0
    for chunk in CHUNK.finditer(tree):
        length = re.search(r"length (\d+)", chunk[2])
        kind = re.search(r"type (\S+)", chunk[2])
        if "METADATA" in kind[1]:
            copies = int(re.search(r"num_stripes (\d+)", chunk[2])[1])
            largest = max(largest, int(length[1]) * copies)
    if not largest:
        raise RuntimeError("no chunk of metadata found in the chunk tree")
    return largest


def missing_space(own, peer):
    """Where `own` uses a mebibyte more than `peer`, or has a metadata chunk more allocated; sentences."""
    found = []
    if own.used_bytes > peer.used_bytes + MEBIBYTE:
        found.append(f"{own.used_bytes} bytes are used after emptying, {peer.used_bytes} after Linux did it")
    # The chunk that is more is one of those that are left here, which may be larger than Linux's.
    chunk_bytes = max(own.metadata_chunk_bytes, peer.metadata_chunk_bytes)
    if own.unallocated_bytes + chunk_bytes < peer.unallocated_bytes:
        found.append(f"{own.unallocated_bytes} bytes are unallocated after emptying, "
                     f"{peer.unallocated_bytes} after Linux did it")
    return found
