"""What one file must hold, as the workload that wrote it knows.

A change that was refused changes nothing. Where an error came after a part of a change was accepted, the
contents are no longer known, and only the name is looked for.
"""

import os

from .listings import attributes_of, digest, digest_of_file


class Opened:
    """A file that is closed at the end of a block."""

    def __init__(self, path, flags):
        self.path, self.flags = path, flags

    def __enter__(self):
        self.file = os.open(self.path, self.flags, 0o644)
        return self.file

    def __exit__(self, *_):
        os.close(self.file)


class Record:
    """What one file holds. Its hard links share the record."""

    PENDING, DURABLE, DOUBTFUL = range(3)

    def __init__(self):
        self.state, self.is_known = self.PENDING, True
        # None where no workload sets attributes or owners, which are not looked at then.
        self.attributes = self.owner = None

    def begin_change(self):
        """What is there is not durable until the next sync; a doubt stays."""
        if self.state == self.DURABLE:
            self.state = self.PENDING

    def copied(self):
        """The record of the same file in a snapshot that was just taken."""
        copy = self.copied_contents()
        copy.state, copy.is_known, copy.owner = self.state, self.is_known, self.owner
        copy.attributes = None if self.attributes is None else dict(self.attributes)
        return copy

    def difference(self, path):
        """How a file differs from its record, in a few words, or nothing."""
        try:
            found = os.lstat(path)
            if self.owner and (found.st_uid, found.st_gid) != self.owner:
                return f"belongs to {found.st_uid}:{found.st_gid} instead of {self.owner}"
            if self.attributes is not None and attributes_of(path) != self.attributes:
                return "has other attributes"
            return self.difference_of_contents(path) if self.is_known else ""
        except OSError as error:
            return error.strerror

    def copied_contents(self):
        raise NotImplementedError

    def difference_of_contents(self, path):
        raise NotImplementedError


class Whole(Record):
    """A file whose bytes are known by their digest; kept, too, where a workload changes them later."""

    def __init__(self, is_kept=False):
        super().__init__()
        self.is_known, self.is_kept, self.content = False, is_kept, None

    def become(self, content):
        """This is what the file holds."""
        self.size, self.digest, self.is_known = len(content), digest(content), True
        self.content = bytearray(content) if self.is_kept else None

    def write(self, offset, part):
        """A write of these bytes was accepted, and the file could be closed."""
        content = self.content
        if part:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset:offset + len(part)] = part
        self.become(content)

    def truncate(self, size):
        content = self.content[:size]
        content.extend(bytes(size - len(content)))
        self.become(content)

    def copied_contents(self):
        copy = Whole()
        if self.is_known:
            copy.size, copy.digest = self.size, self.digest
        return copy

    def difference_of_contents(self, path):
        size, content_digest = digest_of_file(path)
        if size != self.size:
            return f"has {size} bytes instead of {self.size}"
        return "" if content_digest == self.digest else "has other bytes"
