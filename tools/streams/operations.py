"""Random changes to a directory tree, each with the kind of trouble that it makes for who sends the difference.

Everything is chosen by one generator of random numbers, so that a seed gives the same tree again.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess

FICLONERANGE = 0x4020940D
FIDEDUPERANGE = 0xC0189436
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
NOCOW = 0x00800000
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
RENAME_EXCHANGE = 2
SECTOR = 4096
LIBC = ctypes.CDLL(None, use_errno=True)


def allocate(file, mode, offset, length):
    if LIBC.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def exchange(one, other):
    if LIBC.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


class Operations:
    """Changes what is below `root`; `snapshots` are earlier states, by path."""

    def __init__(self, dice, root, snapshots, note):
        self.dice, self.root, self.snapshots, self.note = dice, root, snapshots, note
        self.held = []
        self.serial = 0

    # What there is.

    def names(self):
        """All directories and all other files below the root, without nested subvolumes and what is in them."""
        directories, files = [self.root], []
        for directory in directories:
            with os.scandir(directory) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    status = entry.stat(follow_symlinks=False)
                    if not entry.is_dir(follow_symlinks=False):
                        files.append(entry.path)
                    elif status.st_ino not in (2, 256):
                        directories.append(entry.path)
        return directories, files

    def a_directory(self):
        return self.dice.choice(self.names()[0])

    def two_directories(self):
        """Two that do not lie in each other; none where there are not so many."""
        all_of_them = self.names()[0][1:]
        self.dice.shuffle(all_of_them)
        for one in all_of_them[:8]:
            for other in all_of_them:
                if one != other and not (one + "/").startswith(other + "/") and not (other + "/").startswith(one + "/"):
                    return one, other
        return None

    def a_file(self):
        """Any file that is no directory."""
        files = self.names()[1]
        return self.dice.choice(files) if files else self.make_file()

    def a_regular(self):
        """A regular file that is not huge: of a hole that changes in one, Linux would send every zero."""
        files = [file for file in self.names()[1] if os.path.isfile(file) and not os.path.islink(file)]
        files = [file for file in files if os.path.getsize(file) < 1 << 32]
        return self.dice.choice(files) if files else self.make_file()

    def new_name(self, directory=None):
        self.serial += 1
        directory = directory or self.a_directory()
        name = f"n{self.serial}"
        if self.dice.random() < 0.05:
            name = (name + "-" + "x" * 255)[:255]
            self.note("names of 255 bytes")
        path = os.path.join(directory, name)
        return path if len(os.fsencode(path)) < 3800 else os.path.join(self.root, f"n{self.serial}")

    def bytes(self, length):
        """Some can be compressed, some not; few patterns, so that blocks are equal here and there."""
        pattern = self.dice.randrange(6)
        if pattern == 0:
            return self.dice.randbytes(length)
        return (bytes([pattern]) * 97 + b"text of the pattern\n") * (length // 117 + 1) if length else b""

    def length(self):
        return self.dice.choice([0, 1, 30, 500, 2000, 2048, 3000, 4095, 4096, 4097, 9000, 40_000, 131_072, 200_000, 700_001])

    # Names.

    def make_file(self):
        path = self.new_name()
        length = self.length()
        with open(path, "wb") as file:
            if self.dice.random() < 0.15:
                flags = struct.unpack("i", fcntl.ioctl(file, FS_IOC_GETFLAGS, b"\0\0\0\0"))[0]
                fcntl.ioctl(file, FS_IOC_SETFLAGS, struct.pack("i", flags | NOCOW))
                self.note("nodatacow beside not")
            elif self.dice.random() < 0.3:
                os.setxattr(file.fileno(), "btrfs.compression", self.dice.choice([b"zlib", b"lzo", b"zstd"]))
                self.note("compressed")
            file.write(self.bytes(length)[:length])
        return path

    def make_directory(self):
        os.mkdir(self.new_name())

    def make_special(self):
        path, kind = self.new_name(), self.dice.randrange(5)
        if kind == 0:
            os.symlink("t" * self.dice.choice([1, 100, 3000]), path)
        elif kind == 1:
            os.mkfifo(path)
        elif kind == 2:
            os.mknod(path, 0o020600, os.makedev(self.dice.randrange(4000), self.dice.randrange(70_000)))
        elif kind == 3:
            os.mknod(path, 0o060600, os.makedev(8, self.dice.randrange(300)))
        else:
            directory, name = os.path.split(path)
            here = os.getcwd()
            os.chdir(directory)
            try:
                with socket.socket(socket.AF_UNIX) as end:
                    end.bind(name[:90])
            finally:
                os.chdir(here)

    def remove_file(self):
        os.unlink(self.a_file())

    def remove_directory(self):
        directories = self.names()[0][1:]
        if directories:
            self.remove_all(self.dice.choice(directories))

    def remove_all(self, directory):
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
            elif entry.stat(follow_symlinks=False).st_ino == 256:
                subprocess.run(["btrfs", "-q", "subvolume", "delete", entry.path], check=True)
            else:
                self.remove_all(entry.path)
        os.rmdir(directory)

    def rename_file(self):
        os.rename(self.a_file(), self.new_name())

    def rename_over(self):
        one, other = self.a_file(), self.a_file()
        if one != other:
            os.rename(one, other)
            self.note("names used again")

    def move_directory(self):
        pair = self.two_directories()
        if pair:
            os.rename(pair[0], self.new_name(pair[1]))
            self.note("moves that wait for each other")

    def swap_directories(self):
        pair = self.two_directories()
        if pair:
            exchange(*pair)
            self.note("directories swapped")

    def swap_any(self):
        pair = (self.a_file(), self.dice.choice(self.names()[0][1:] or [self.a_file()]))
        if pair[0] != pair[1] and not pair[0].startswith(pair[1] + "/"):
            exchange(*pair)
            self.note("a file and a directory swapped")

    def into_former_child(self):
        directories = [path for path in self.names()[0][1:] if os.path.dirname(path) != self.root]
        if directories:
            child = self.dice.choice(directories)
            parent = os.path.dirname(child)
            outside = self.new_name(os.path.dirname(parent))
            os.rename(child, outside)
            os.rename(parent, os.path.join(outside, os.path.basename(parent)[:200] + "~"))
            self.note("moved into its own former child")

    def recreate_directory(self):
        directories = self.names()[0][1:]
        if directories:
            old = self.dice.choice(directories)
            aside = self.new_name(os.path.dirname(old))
            os.rename(old, aside)
            os.mkdir(old)
            for entry in list(os.scandir(aside))[:3]:
                os.rename(entry.path, os.path.join(old, entry.name))
            self.remove_all(aside)
            self.note("deleted and made again")

    def rotate(self):
        directory = self.a_directory()
        base = os.path.join(directory, "log")
        for number in range(3, 0, -1):
            if os.path.lexists(f"{base}.{number}"):
                os.rename(f"{base}.{number}", f"{base}.{number + 1}")
        with open(f"{base}.1", "wb") as file:
            file.write(self.bytes(300)[:300])
        self.note("names rotate")

    def name_of_another_type(self):
        path = self.a_file()
        os.unlink(path)
        os.mkdir(path)
        self.note("a name of another type")

    def link(self):
        source = self.a_file()
        os.link(source, self.new_name(), follow_symlinks=False)
        self.note("hard links across directories")

    def link_and_unlink_first(self):
        source = self.a_file()
        os.link(source, self.new_name(), follow_symlinks=False)
        os.unlink(source)
        self.note("the first link goes")

    def many_links(self):
        source, directory = self.a_file(), self.a_directory()
        for number in range(self.dice.choice([3, 60])):
            path = os.path.join(directory, f"link-{self.serial}-{number}" + "y" * self.dice.choice([1, 200]))
            if not os.path.lexists(path):
                os.link(source, path, follow_symlinks=False)
        self.note("many links")

    def nested_subvolume(self):
        path = self.new_name()
        subprocess.run(["btrfs", "-q", "subvolume", "create", path], check=True)
        with open(os.path.join(path, "inside"), "w") as file:
            file.write("not sent")
        self.held_subvolume = path

    def directory_of_subvolume(self):
        path = getattr(self, "held_subvolume", None)
        if path and os.path.isdir(path) and os.stat(path).st_ino == 256:
            subprocess.run(["btrfs", "-q", "subvolume", "delete", path], check=True)
            os.mkdir(path)
            with open(os.path.join(path, "inside"), "w") as file:
                file.write("sent")
            self.note("a subvolume becomes a directory")
        else:
            directories = self.names()[0][1:]
            if directories:
                path = self.dice.choice(directories)
                self.remove_all(path)
                subprocess.run(["btrfs", "-q", "subvolume", "create", path], check=True)
                self.held_subvolume = path
                self.note("a directory becomes a subvolume")

    def unlinked_but_open(self):
        path = self.a_regular()
        self.held.append(open(path, "rb"))
        os.unlink(path)
        self.note("unlinked but open")

    # Attributes.

    def mode(self):
        os.chmod(self.dice.choice(self.names()[0] + [self.a_regular()]), self.dice.randrange(0o10000))

    def owner(self):
        os.chown(self.a_file(), self.dice.randrange(5), self.dice.choice([0, 7, 4_294_967_290]), follow_symlinks=False)

    def times(self):
        path = self.dice.choice(self.names()[0] + [self.a_file()])
        moment = self.dice.choice([-2_000_000_000, 0, 1, 10**9, 2**32 + 5]) * 10**9 + self.dice.randrange(10**9)
        os.utime(path, ns=(moment + 5, moment), follow_symlinks=False)
        if path == self.root:
            self.note("times of the root")

    def xattr(self):
        path = self.dice.choice(self.names()[0] + [self.a_regular()])
        name = self.dice.choice(["user.one", "user.two", "trusted.three", "user." + "n" * 250])
        length = self.dice.choice([0, 1, 200, 3000, 15_000])
        if length == 15_000:
            self.note("extended attributes near the limit")
        os.setxattr(path, name, self.bytes(length)[:length])

    def remove_xattr(self):
        path = self.dice.choice(self.names()[0] + [self.a_regular()])
        for name in os.listxattr(path):
            if name.startswith(("user.", "trusted.")):
                os.removexattr(path, name)
                return

    def access_list(self):
        path = self.dice.choice(self.names()[0] + [self.a_regular()])
        entry = lambda tag, rights, who: struct.pack("<HHI", tag, rights, who)
        nobody = 0xFFFFFFFF
        value = struct.pack("<I", 2) + entry(1, 7, nobody) + entry(2, 5, self.dice.randrange(1, 9))
        value += entry(4, 5, nobody) + entry(16, 7, nobody) + entry(32, 4, nobody)
        os.setxattr(path, "system.posix_acl_access", value)
        if os.path.isdir(path):
            os.setxattr(path, "system.posix_acl_default", value)
        self.note("access lists")

    def capability(self):
        value = struct.pack("<IIIII", 0x02000001, 1 << self.dice.randrange(30), 0, 0, 0)
        os.setxattr(self.a_regular(), "security.capability", value)
        self.note("capabilities")

    # Content.

    def write(self):
        path = self.a_regular()
        size = os.path.getsize(path)
        offset = self.dice.randrange(min(size, 1 << 21) + 1)
        length = self.length()
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(self.bytes(length)[:length])

    def append(self):
        path, length = self.a_regular(), self.length()
        with open(path, "ab") as file:
            file.write(self.bytes(length)[:length])

    def cut(self):
        path = self.a_regular()
        os.truncate(path, self.dice.randrange(min(os.path.getsize(path), 1 << 21) + 1))
        self.note("cut")

    def inline_and_back(self):
        path = self.a_regular()
        if os.path.getsize(path) <= 2048:
            with open(path, "ab") as file:
                file.write(self.bytes(50_000)[:50_000])
            self.note("inline becomes regular")
        else:
            with open(path, "wb") as file:
                file.write(b"small")
            self.note("regular becomes inline")

    def sparse(self):
        is_huge = self.dice.random() < 0.3
        path = self.new_name() if is_huge else self.a_regular()
        with open(path, "wb" if is_huge else "r+b") as file:
            if is_huge:
                file.seek(1 << 40)
                self.note("terabyte holes")
            else:
                file.seek(self.dice.randrange(1 << 22))
            file.write(b"behind a hole")

    def reserve(self):
        path = self.a_regular()
        with open(path, "r+b") as file:
            allocate(file.fileno(), self.dice.choice([0, KEEP_SIZE]), self.dice.randrange(1 << 20), 300_000)
        self.note("preallocated")

    def punch(self):
        path = self.a_regular()
        with open(path, "r+b") as file:
            allocate(file.fileno(), PUNCH_HOLE | KEEP_SIZE, self.dice.randrange(200_000), self.dice.randrange(1, 200_000))
        self.note("punched")

    def zero(self):
        path = self.a_regular()
        with open(path, "r+b") as file:
            allocate(file.fileno(), ZERO_RANGE, self.dice.randrange(200_000), self.dice.randrange(1, 200_000))
        self.note("zeroed")

    def clone(self, source, target, offset, length, to):
        with open(source, "rb") as read, open(target, "r+b") as written:
            argument = struct.pack("<qQQQ", read.fileno(), offset, length, to)
            try:
                fcntl.ioctl(written, FICLONERANGE, argument)
            except OSError as error:
                # A file without checksums takes none with, and ranges of a file may not lie in one another.
                if error.errno not in (22, 95):
                    raise
                return False
        return True

    def range_of(self, source):
        size = os.path.getsize(source)
        offset = self.dice.randrange(min(size, 1 << 20) // SECTOR + 1) * SECTOR
        left = max(size - offset, 0)
        length = min(left, self.dice.randrange(1, 60) * SECTOR)
        return offset, length

    def clone_within(self):
        path = self.a_regular()
        offset, length = self.range_of(path)
        to = self.dice.randrange(100) * SECTOR
        if length >= SECTOR and self.clone(path, path, offset, length // SECTOR * SECTOR, to):
            self.note("clones within a file")

    def clone_between(self):
        source, target = self.a_regular(), self.a_regular()
        offset, length = self.range_of(source)
        if source != target and length >= SECTOR:
            if self.clone(source, target, offset, length // SECTOR * SECTOR, self.dice.randrange(60) * SECTOR):
                self.note("clones between files")
                if self.dice.random() < 0.4:
                    os.truncate(source, os.path.getsize(source) // 2)
                    self.note("sources that are cut later")

    def clone_whole(self):
        source, target = self.a_regular(), self.new_name()
        with open(target, "wb"):
            pass
        if self.clone(source, target, 0, 0, 0):
            if os.path.getsize(source) % SECTOR:
                self.note("clone ends that are not aligned")

    def clone_from_snapshot(self):
        if not self.snapshots:
            return
        snapshot = self.dice.choice(self.snapshots)
        files = Operations(self.dice, snapshot, [], None).names()[1]
        files = [file for file in files if os.path.isfile(file) and not os.path.islink(file)]
        files = [file for file in files if os.path.getsize(file) < 1 << 32]
        if files:
            source, target = self.dice.choice(files), self.a_regular()
            offset, length = self.range_of(source)
            if length >= SECTOR and self.clone(source, target, offset, length // SECTOR * SECTOR, 0):
                self.note("clones between subvolumes")

    def bookend(self):
        path = self.a_regular()
        if os.path.getsize(path) > 3 * SECTOR:
            os.sync()
            with open(path, "r+b") as file:
                file.seek(SECTOR + self.dice.randrange(SECTOR))
                file.write(b"in the middle" * self.dice.choice([1, 400]))
            self.note("bookend extents")

    def dedupe(self):
        source, target = self.a_regular(), self.a_regular()
        if source == target or min(os.path.getsize(source), os.path.getsize(target)) < SECTOR:
            return
        with open(source, "r+b") as read, open(target, "r+b") as written:
            read.write(b"s" * SECTOR)
            written.write(b"s" * SECTOR)
            read.flush()
            written.flush()
            argument = struct.pack("<QQHHIqQQiI", 0, SECTOR, 1, 0, 0, written.fileno(), 0, 0, 0, 0)
            try:
                fcntl.ioctl(read, FIDEDUPERANGE, argument)
            except OSError as error:
                if error.errno not in (22, 95):
                    raise
                return
        self.note("deduplicated")

    # The whole.

    def step(self):
        """One change. A change that the file system refuses (a directory that is not empty, a name that is
        too long) is none."""
        weights = {
            "make_file": 8, "make_directory": 5, "make_special": 2, "remove_file": 4, "remove_directory": 1,
            "rename_file": 4, "rename_over": 2, "move_directory": 4, "swap_directories": 2, "swap_any": 1,
            "into_former_child": 3, "recreate_directory": 2, "rotate": 1, "name_of_another_type": 1, "link": 3,
            "link_and_unlink_first": 2, "many_links": 1, "nested_subvolume": 0.5, "directory_of_subvolume": 0.7,
            "unlinked_but_open": 0.5, "mode": 2, "owner": 2, "times": 2, "xattr": 3, "remove_xattr": 1,
            "access_list": 1, "capability": 1, "write": 5, "append": 3, "cut": 2, "inline_and_back": 2, "sparse": 1,
            "reserve": 2, "punch": 2, "zero": 1, "clone_within": 2, "clone_between": 3, "clone_whole": 2,
            "clone_from_snapshot": 2, "bookend": 2, "dedupe": 1,
        }
        name = self.dice.choices(list(weights), list(weights.values()))[0]
        try:
            getattr(self, name)()
        except OSError as error:
            # EEXIST, EINVAL, EMLINK, ENAMETOOLONG, ENOTEMPTY, EOPNOTSUPP, ENOSPC of an attribute
            if error.errno not in (17, 22, 28, 31, 36, 39, 95):
                raise

    def let_go(self):
        """Closes what is open without a name."""
        for file in self.held:
            file.close()
        self.held.clear()
