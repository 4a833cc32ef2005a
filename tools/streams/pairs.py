#!/usr/bin/env python3
"""Pairs of snapshots from random operations travel as streams, and come out equal.

    pairs.py [--pairs N] [--chain N] [--least N] [--protocol 1] [--seed N] [--vlinder PATH] [--keep]

Root. --chain is the number of pairs of one image. TMPDIR is where images lie (/dev/shm). The last line is the verdict, as
JSON.

The kernel makes a tree, changes it and takes a snapshot, again and again. Each pair of snapshots is sent by the kernel
and by vlinder, with protocol 1 and 2 in turn; the kernel receives both, and vlinder receives both. The four results are
compared with the snapshot, file by file. Where Linux's own pair differs (the time of the root: btrfs-progs, issue 461;
access lists that files inherit while they are received; bytes behind a short compressed extent, and behind the end
of a file that was cut and grows by a clone; directories under names of its own that its stream leaves), or can't be received at all, that is counted, and vlinder may make the same of that stream. Its own must be right. vlinder's stream is at most 1.05 times as long as the kernel's, and what the
kernel receives of it (in version 1) takes no more space.

At the end stand the commands of vlinder's streams and the kinds of trouble that the pairs had: each must have come --least
times. --keep leaves the images of a pair that differs.
"""

import argparse
import collections
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from operations import Operations
from walk import blocks, difference, walk

KINDS = [
    "moves that wait for each other", "directories swapped", "moved into its own former child", "names used again",
    "deleted and made again", "a name of another type", "orphan names", "hard links across directories",
    "the first link goes", "many links", "numbers used again", "numbers used again by another type",
    "a subvolume becomes a directory", "a directory becomes a subvolume", "several clone sources", "an older parent",
    "clones within a file", "clones between files", "clones between subvolumes", "bookend extents",
    "clone ends that are not aligned", "sources that are cut later", "compressed", "compressed extents as they are",
    "preallocated", "punched", "zeroed", "without no-holes", "inline becomes regular", "regular becomes inline",
    "nodatacow beside not", "terabyte holes", "names of 255 bytes", "extended attributes near the limit",
    "snapshots of snapshots", "unlinked but open", "times of the root", "capabilities", "access lists", "deduplicated",
    "names rotate", "a file and a directory swapped", "cut",
]
COMMANDS = {
    1: "subvolume", 2: "snapshot", 3: "mkfile", 4: "mkdir", 5: "mknod", 6: "mkfifo", 7: "mksock", 8: "symlink", 9: "rename",
    10: "link", 11: "unlink", 12: "rmdir", 13: "set_xattr", 14: "remove_xattr", 15: "write", 16: "clone", 17: "truncate",
    18: "chmod", 19: "chown", 20: "utimes", 21: "end", 22: "update_extent", 23: "fallocate", 24: "fileattr",
    25: "encoded_write",
}


def run(*words, check=True):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stdout}")
    return done


def commands_of(stream):
    """Numbers of the commands, and the paths of renames."""
    with open(stream, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        if data[at:at + 13] == b"btrfs-stream\0":
            at += 17
            continue
        length, number = struct.unpack_from("<IH", data, at)
        yield number, data[at + 10:at + 10 + length]
        at += 10 + length


def content_bytes(stream):
    """Bytes of the commands that carry content, without paths: those depend on which of two paths a file has meanwhile."""
    total = 0
    for number, attributes in commands_of(stream):
        if number in (15, 25):
            # The path comes first: two bytes that say so, its length, and it.
            total += len(attributes) - struct.unpack_from("<HH", attributes)[1]
    return total


class Image:
    """An image that is mounted by the kernel from time to time."""

    def __init__(self, directory, name, options="", features=""):
        self.path, self.point = os.path.join(directory, name), os.path.join(directory, name + ".mount")
        self.options = options
        os.mkdir(self.point)
        with open(self.path, "wb") as file:
            file.truncate(3 << 30)
        run("mkfs.btrfs", "-q", *([f"-O{features}"] if features else []), self.path)

    def mount(self):
        run("mount", "-o", "loop,noatime" + self.options, self.path, self.point)

    def unmount(self):
        run("umount", self.point)

    def at(self, name):
        return os.path.join(self.point, name)


class Chain:
    """Snapshots of one image, each a change of the one before."""

    def __init__(self, options, seed, length, scratch, kinds, commands):
        self.options = options
        self.dice, self.length, self.scratch = random.Random(seed), length, scratch
        self.seed, self.kinds, self.commands = seed, kinds, commands
        self.note = lambda kind: self.of_step.add(kind)
        self.of_step, self.pairs, self.linux_differs = set(), [], 0
        self.linux_walks, self.linux_stops = [], length + 1
        features = self.dice.choice(["", "", "^no-holes"])
        self.has_holes = features == "^no-holes"
        options = self.dice.choice(["", "", ",compress=zstd", ",compress-force=lzo", ",compress=zlib"])
        self.is_compressed = bool(options)
        forms = [[], [], ["--proto", "2"], ["--proto", "2", "--compressed-data"]]
        self.form = [] if self.options.protocol == 1 else self.dice.choice(forms)
        self.source = Image(scratch, "source", options, features)

    def grow(self):
        """Makes the snapshots."""
        source = self.source
        source.mount()
        run("btrfs", "-q", "subvolume", "create", source.at("v"))
        snapshots = []
        operations = Operations(self.dice, source.at("v"), snapshots, self.note)
        for number in range(self.length + 1):
            self.of_step = set()
            if number and self.dice.random() < 0.3:
                self.use_numbers_again(operations)
            elif number and self.dice.random() < 0.1:
                # The tree goes on from a snapshot of the last snapshot.
                operations.let_go()
                run("btrfs", "-q", "subvolume", "snapshot", source.at(f"s{number - 1}"), source.at(f"v{number}"))
                operations.root = source.at(f"v{number}")
                self.note("snapshots of snapshots")
            for _ in range(60 if number == 0 else self.dice.choice([1, 4, 12, 30])):
                operations.step()
            run("btrfs", "-q", "subvolume", "snapshot", "-r", operations.root, source.at(f"s{number}"))
            if number:
                self.choose(number)
            snapshots.append(source.at(f"s{number}"))
        operations.let_go()
        self.walks = [walk(snapshot) for snapshot in snapshots]

    def use_numbers_again(self, operations):
        """After a remount the highest numbers are given again."""
        made = [operations.make_file() for _ in range(3)]
        root = operations.root
        run("btrfs", "-q", "subvolume", "snapshot", "-r", root, self.source.at("aside"))
        run("btrfs", "-q", "subvolume", "delete", self.source.at("aside"))
        before = self.newest(root)
        for path in before[-6:]:
            if os.path.isdir(path) and not os.path.islink(path):
                operations.remove_all(path)
            elif os.path.lexists(path):
                os.unlink(path)
        operations.let_go()
        self.source.unmount()
        self.source.mount()
        for number in range(4):
            if self.dice.random() < 0.5:
                operations.make_directory()
                self.note("numbers used again by another type")
            else:
                operations.make_file()
                self.note("numbers used again")
        return made

    def newest(self, root):
        directories, files = Operations(self.dice, root, [], None).names()
        return sorted(directories[1:] + files, key=lambda path: os.lstat(path).st_ino)

    def choose(self, number):
        """Which snapshot is the parent, and which are clone sources."""
        parent, sources = number - 1, []
        if number > 2 and self.dice.random() < 0.15:
            parent = self.dice.randrange(number - 1)
            self.note("an older parent")
        if number > 2 and self.dice.random() < 0.25:
            sources = self.dice.sample(range(number), 2)
            self.note("several clone sources")
        if self.has_holes:
            self.note("without no-holes")
        if self.is_compressed:
            self.note("compressed")
        self.pairs.append((number, parent, sources, self.of_step))

    def words(self, prefix, parent, sources):
        words = [] if parent is None else ["-p", f"{prefix}/s{parent}"]
        for source in sources:
            words += ["-c", f"{prefix}/s{source}"]
        return words

    def send(self):
        """All pairs, by the kernel and by vlinder."""
        everything = [(0, None, [], set())] + self.pairs
        for number, parent, sources, _ in everything:
            words = self.words(self.source.point, parent, sources)
            run("btrfs", "send", "-q", *self.flags(), *words, "-f", self.stream("kernel", number), self.source.at(f"s{number}"))
        self.source.unmount()
        for number, parent, sources, _ in everything:
            prefix = self.source.path + ":"
            words = self.words(prefix, parent, sources)
            run(self.options.vlinder, "send", "-q", *self.flags(), *words, "-f", self.stream("vlinder", number), f"{prefix}/s{number}")
        for number, _, _, kinds in self.pairs:
            for command, attributes in commands_of(self.stream("vlinder", number)):
                self.commands[COMMANDS.get(command, str(command))] += 1
                if command == 9 and b"-" in attributes and b"\x0f\x00" in attributes and self.is_orphan(attributes):
                    kinds.add("orphan names")
                if command == 25:
                    kinds.add("compressed extents as they are")
            for kind in kinds:
                self.kinds[kind] += 1

    def is_orphan(self, attributes):
        """Whether a rename leads to a name of the sender's own, oNUMBER-GENERATION-INDEX."""
        parts = attributes.replace(b"\0", b"/").split(b"/")
        return any(part.startswith(b"o") and part.count(b"-") == 2 and part[1:].replace(b"-", b"").isdigit() for part in parts)

    def flags(self):
        return self.form

    def stream(self, sender, number):
        return os.path.join(self.scratch, f"{sender}-{number}.stream")

    def receive(self, sender, receiver):
        """The streams of a sender, received one after the other, and compared."""
        target = Image(self.scratch, f"{sender}-{receiver}")
        numbers = range(self.linux_stops if sender == "kernel" else self.length + 1)
        if receiver == "kernel":
            target.mount()
            for number in numbers:
                command = ("btrfs", "receive", "-q", "-f", self.stream(sender, number), target.point)
                if run(*command, check=sender != "kernel").returncode:
                    # Linux can't receive what it sent itself, and nothing that builds on it.
                    run("btrfs", "-q", "subvolume", "delete", target.at(f"s{number}"))
                    self.linux_stops, numbers = number, range(number)
                    break
        else:
            for number in numbers:
                run(self.options.vlinder, "receive", "-q", "-f", self.stream(sender, number), f"{target.path}:/")
            run("btrfs", "check", "--readonly", target.path)
            target.mount()
        found = []
        for number in numbers:
            walked = walk(target.at(f"s{number}"))
            if sender == receiver == "kernel":
                self.linux_differs += walked != self.walks[number]
                self.linux_walks.append(walked)
                lines = []
            elif sender == "kernel":
                # What Linux makes of its own stream in the same way, the stream says; a directory that it leaves has some
                # time.
                linux, sent = self.linux_walks[number], self.walks[number]
                is_said = lambda path, facts: linux.get(path) == facts or path in linux and path not in sent
                as_linux = {path: facts for path, facts in walked.items() if is_said(path, facts)}
                lines = difference({**sent, **as_linux}, walked)
            else:
                lines = difference(self.walks[number], walked)
            if lines:
                raise AssertionError(f"{sender} sent s{number}, {receiver} received:\n" + "\n".join(lines))
            found.append(blocks(target.at(f"s{number}")))
        # What is freed by a commit is counted as free by the next.
        for _ in range(2):
            run("btrfs", "filesystem", "sync", target.point)
        used = run("btrfs", "filesystem", "df", "--raw", target.point).stdout
        used = int(next(line for line in used.splitlines() if line.startswith("Data")).split("used=")[1])
        target.unmount()
        os.unlink(target.path)
        return found, used

    def compare(self):
        stored = {}
        for sender in ("kernel", "vlinder"):
            for receiver in ("kernel", "vlinder"):
                stored[sender, receiver] = self.receive(sender, receiver)
        sizes = [[os.path.getsize(self.stream(sender, number)) for number in range(self.length + 1)] for sender in ("vlinder", "kernel")]
        contents = [[content_bytes(self.stream(sender, number)) for number in range(self.length + 1)] for sender in ("vlinder", "kernel")]
        for number, (ours, theirs) in enumerate(zip(*contents)):
            # A compressed inline extent before a hole goes as a plain sector: Linux's encoded write would leave what lies
            # behind it in the sector.
            if ours > theirs * 1.05 + 8192:
                raise AssertionError(f"the stream of s{number} has {ours} bytes of content, the kernel's {theirs}")
        if sum(sizes[0]) > sum(sizes[1]) * 1.05:
            raise AssertionError(f"the streams have {sum(sizes[0])} bytes, the kernel's {sum(sizes[1])}")
        ours, theirs = (stored[sender, "kernel"][1] for sender in ("vlinder", "kernel"))
        # In version 2 we reserve what the sender's files reserve, and Linux does not.
        is_judged = not self.form and self.linux_stops > self.length
        # The same stream takes more or less with the moments at which Linux writes back what it receives: the most and the
        # least of some tries are compared.
        for _ in range(3):
            if ours <= theirs or not is_judged:
                break
            ours = min(ours, self.receive("vlinder", "kernel")[1])
            theirs = max(theirs, self.receive("kernel", "kernel")[1])
        if ours > theirs and is_judged:
            raise AssertionError(f"received, they take {ours} bytes, the kernel's {theirs}")
        return sum(sizes[0]), sum(sizes[1]), ours, theirs


def tables(kinds, commands):
    """Lines of the two histograms."""
    for name, counter, known in (("commands", commands, []), ("kinds", kinds, KINDS)):
        yield f"{name}:"
        for key in sorted(set(counter) | set(known), key=lambda key: -counter[key]):
            yield f"  {counter[key]:8} {key}"


def clear(scratch):
    """Takes the mounts in a directory away, and the directory with all images."""
    for name in os.listdir(scratch):
        run("umount", "-q", os.path.join(scratch, name), check=False)
    # What could not be taken away is not emptied by way of its mount.
    for entry in os.scandir(scratch):
        os.rmdir(entry.path) if entry.is_dir() else os.unlink(entry.path)
    os.rmdir(scratch)


def end(verdict, **facts):
    print(json.dumps({"verdict": verdict, **facts}))
    sys.exit(0 if verdict == "pass" else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("pairs", 100), ("chain", 25), ("least", 0), ("protocol", 0), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--vlinder", default="vlinder")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    kinds, commands, done, number = collections.Counter(), collections.Counter(), 0, 0
    while done < options.pairs:
        length, seed = min(options.chain, options.pairs - done), options.seed * 100_000 + number
        scratch = tempfile.mkdtemp(prefix="pairs.", dir=os.environ.get("TMPDIR", "/dev/shm"))
        chain = Chain(options, seed, length, scratch, kinds, commands)
        try:
            chain.grow()
            chain.send()
            ours, theirs, our_bytes, their_bytes = chain.compare()
        except (AssertionError, RuntimeError) as error:
            print(f"chain {number} of seed {options.seed} (generator {seed}): {error}", flush=True)
            if not options.keep:
                clear(scratch)
            end("fail", reason=str(error)[:500], scratch=scratch if options.keep else None)
        clear(scratch)
        done, number = done + length, number + 1
        print(
            f"{done} pairs: {ours} bytes of streams, the kernel's {theirs}; {our_bytes} stored, the kernel's {their_bytes};"
            f" Linux's own differ {chain.linux_differs} times"
            + (f", and can't be received from {chain.linux_stops} on" if chain.linux_stops <= length else ""),
            flush=True,
        )
    print("\n".join(tables(kinds, commands)))
    few = [kind for kind in KINDS if kinds[kind] < options.least]
    if few:
        end("fail", reason=f"fewer than {options.least} times: {', '.join(few)}")
    end("pass", pairs=done, kinds=kinds, commands=commands)


main()
