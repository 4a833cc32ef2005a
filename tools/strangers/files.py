"""Attacks by files: owners that are no users (R3), and set-id bits of files that others change (R8)."""

import os
import stat
import struct
import sys

from arena import MALLORY, Violation

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "setid"))
import table  # noqa: E402

NODE_BYTES = 16_384
HEADER = struct.Struct("<32s16sQQ16sQQIB")
ITEM = struct.Struct("<QBQII")
INODE_ITEM = 1
NOBODY = 2**32 - 1
# What the image is made with, to be found again.
MARK_USER, MARK_GROUP = 0x51ED_0001, 0x51ED_0002


def crc32c_table():
    entries = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F6_3B78 if byte & 1 else 0)
        entries.append(byte)
    return entries


CRC32C = crc32c_table()


def crc32c(data):
    value = 0xFFFF_FFFF
    for byte in data:
        value = value >> 8 ^ CRC32C[(value ^ byte) & 0xFF]
    return value ^ 0xFFFF_FFFF


def give_to(image, user, group):
    """Gives files of the marks to other ids, in each leaf that has such an inode."""
    changed = 0
    with open(image, "r+b") as file:
        content = file.read()
        for at in range(1 << 20, len(content), NODE_BYTES):
            block = bytearray(content[at:at + NODE_BYTES])
            _, _, _, _, _, generation, _, count, level = HEADER.unpack_from(block)
            if level or not generation or count > 500 or struct.pack("<II", MARK_USER, MARK_GROUP) not in block:
                continue
            for number in range(count):
                _, kind, _, offset, length = ITEM.unpack_from(block, 101 + 25 * number)
                owner = 101 + offset + 44
                if kind == INODE_ITEM and length == 160 and struct.unpack_from("<II", block, owner) == (MARK_USER, MARK_GROUP):
                    struct.pack_into("<II", block, owner, user, group)
            block[:4] = struct.pack("<I", crc32c(block[32:]))
            file.seek(at)
            file.write(block)
            changed += 1
    if not changed:
        raise RuntimeError("no inode with the marks")


KINDS = ("file", "directory", "fifo", "device")
OWNERS = {"user": (NOBODY, 0), "group": (0, NOBODY), "both": (NOBODY, NOBODY), "user of a group": (NOBODY, MALLORY)}
COPIES = {
    "cp": ("cp", "-a", "{image}:/tree", "{to}"),
    "cp of one": ("cp", "-a", "{image}:/tree/{kind}", "{to}"),
    "restore": ("restore", "-m", "{image}", "{to}"),
    "cp from a mount": ("cp", "-a", "{point}/tree", "{to}"),
    "cp into an image": ("cp", "-a", "{image}:/tree", "{second}:/"),
}


def copy_from_nobody(arena, owner, copy, mode, user):
    """A copy of a file whose owner is no user gets no set-id bit that the copying user's own ids stand behind."""
    image, point = arena.mount("m")
    os.mkdir(f"{point}/tree")
    for kind in KINDS:
        make(f"{point}/tree/{kind}", kind)
        os.chown(f"{point}/tree/{kind}", MARK_USER, MARK_GROUP)
        os.chmod(f"{point}/tree/{kind}", mode)
    arena.done("umount", point)
    give_to(image, *OWNERS[owner])
    os.chown(image, user, user)
    second = arena.image("second.img", user)
    if copy == "cp from a mount":
        arena.done("mount", "-o", "allow_other,owners=keep", image, point)
    to = arena.directory("to", user)
    kind = KINDS[mode % len(KINDS)]
    words = [word.format(image=image, point=point, second=second, to=to, kind=kind) for word in COPIES[copy]]
    ended = arena.run(*words, user=user)
    if b"panicked" in ended.err or ended.code in (101, 134):
        raise Violation(f"{' '.join(words)}: {ended.said()[-300:]}")
    if copy == "cp into an image":
        arena.done("mount", "-o", "allow_other,owners=keep", second, to)
    judge_copies(to, user, words, owner)
    check = arena.run("check", image)
    if str(NOBODY) not in check.said():
        raise Violation(f"check says nothing of the owner: {check.said()[-300:]}")


def make(path, kind):
    if kind == "file":
        with open(path, "wb") as file:
            file.write(b"#!/bin/sh\nid -u\n")
    elif kind == "directory":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.mknod(path, 0o020_600, os.makedev(1, 3))


def judge_copies(to, user, words, owner):
    is_nobody = [number == NOBODY for number in OWNERS[owner]]
    for above, directories, files in os.walk(to):
        for name in files + directories:
            status = os.lstat(f"{above}/{name}")
            is_theirs = (is_nobody[0] and status.st_uid == user and status.st_mode & stat.S_ISUID
                         or is_nobody[1] and status.st_gid == user and status.st_mode & stat.S_ISGID)
            if is_theirs and not stat.S_ISDIR(status.st_mode):
                raise Violation(f"{' '.join(words)} made {name} {status.st_mode:o} of {status.st_uid}:{status.st_gid}")


def r3(choose):
    for owner in OWNERS:
        for copy in COPIES:
            mode, user = choose.choice((0o6755, 0o4755, 0o2755, 0o6777)), choose.choice((0, 0, MALLORY))
            yield f"{copy} of {owner}", copy_from_nobody, (owner, copy, mode, user)


CHANGES = [name for name in table.OPERATIONS if not name.startswith(("chown", "chgrp", "fchown", "chmod", "mapped", "write of nothing"))]
CHANGERS = {"other": 2, "owner outside the group": 2, "other in the group": 0, "root of a user namespace": 2,
            "root without CAP_FSETID": 2, "owner in the group by a further one": 0}


def change_set_id(arena, operation, user, options):
    """A file that a user changes without CAP_FSETID loses its set-id bits as on Linux."""
    _, point = arena.mount("m", 0, f"allow_other,{options}".strip(","))
    os.chmod(point, 0o777)
    with open(f"{point}/source", "wb") as file:
        file.write(b"z" * table.SIZE)
    os.chmod(f"{point}/source", 0o644)
    for mode in table.MODES:
        left = table.cell(point, user, operation, mode, 1)
        if not left.endswith("done"):
            continue
        bits, before = int(left[:4], 8), int(mode[:4], 8)
        # Set-group-id without execution by the group stays for its members alone; the kernel's way leaves it to all.
        keeps_group = not before & 0o010 and (CHANGERS[user] == 0 or "kernel" in options)
        expected = before & ~0o4000 & (0o7777 if keeps_group else ~0o2000)
        if bits != expected or "+cap" in left:
            raise Violation(f"{operation} by {user} of {mode} with {options or 'no options'} leaves {left}, not {expected:04o}")


def r8(choose):
    for operation in CHANGES:
        user = choose.choice(list(CHANGERS))
        for options in ("", choose.choice(("writeback=off", "killpriv=kernel"))):
            yield f"{operation} by {user}, {options or 'default'}", change_set_id, (operation, user, options)
