"""Attacks by way of the control socket: connections that idle (R4), and servers that answer as they like (R6)."""

import json
import os
import re
import struct
import time

from arena import MALLORY, PATIENCE, SCHEMA, STRANGERS, Violation, frame, request

# R4: what strangers do with their connections.
DEEP = b"[" * 100_000
MANNERS = {
    "nothing": b"",
    "half a length": b"\x10\x00",
    "half a message": frame(request("mount"))[:-3],
    "a length of 4 GiB": b"\xff\xff\xff\xff",
    "a length of 1 MiB": struct.pack("<I", 1 << 20),
    "no JSON": frame(b"\0" * 100),
    "deep JSON": frame(DEEP),
    "another schema": frame({"schema": "x" * 10_000, "request": {"verb": "mount"}}),
    "no verb": frame({"schema": SCHEMA, "request": {}}),
    "an unknown verb": frame({"schema": SCHEMA, "request": {"verb": "\x1b[2J" * 1000}}),
    "a long path": frame(request("root-id", path="a/" * 400_000)),
    "a path upwards": frame(request("root-id", path="../../../../etc/passwd")),
    "a path with a zero": frame(request("root-id", path="a\0b")),
    "a lease": frame(request("lease")),
    "an unmount": frame(request("unmount")),
    "a call that never comes": frame(request("by-call", request={"verb": "subvolume-create", "path": "x", "umask": 0})),
    "calls in calls": frame({"schema": SCHEMA, "request": json.loads('{"verb":"by-call","request":' * 60 + "{}" + "}" * 60)}),
    "a wait for a deletion": frame(request("subvolume-sync", numbers=[2**63])),
    "many syncs": frame(request("filesystem-sync")) * 50,
    "many statistics, unread": frame(request("statistics")) * 200,
    "many lists, unread": frame(request("subvolume-list")) * 500,
}


def crowd(arena, manner, count, users):
    """The owner and root work while strangers hold as many connections as they get."""
    _, point = arena.mount("m", MALLORY)
    path = arena.socket_of(point, MALLORY)
    os.chmod(point, 0o755)
    for number in range(count):
        stream = arena.connect(path, users[number % len(users)])
        if stream is not None and MANNERS[manner]:
            stream.setblocking(False)
            try:
                stream.send(MANNERS[manner])
            except OSError:
                pass
    for user in (0, MALLORY):
        how = {"user": user, "seconds": PATIENCE / 2}
        arena.done("filesystem", "sync", point, **how)
        arena.done("subvolume", "create", f"{point}/of-{user}", **how)
        arena.done("filesystem", "usage", point, **how)
        arena.done("subvolume", "delete", f"{point}/of-{user}", **how)
    left = set(os.listdir(point))
    if left:
        raise Violation(f"strangers left {left}")
    arena.done("umount", point, user=MALLORY)


def r4(choose):
    for manner in MANNERS:
        users = choose.choice((STRANGERS[:1], STRANGERS))
        yield f"{manner} of {len(users)}", crowd, (manner, choose.choice((20, 70, 200)), users)


# R6: how a server of mallory's answers.
ESCAPE = "\x1b]0;owned\x07\x1b[31m\r\n\u202e"
RECORD = {"process": 1, "version": ESCAPE, "devices": [], "mountpoint": ESCAPE, "root": 5, "uuid": ESCAPE, "options": [ESCAPE]}


def error(text):
    return {"schema": SCHEMA, "result": {"error": {"kind": "corruption", "errno": 5, "message": text, "hint": text, "place": text}}}


def answer(kind, **fields):
    return {"schema": SCHEMA, "result": {"answer": {"answer": kind, **fields}}}


def send(*messages):
    def work(stream):
        stream.recv(1 << 16)
        for message in messages:
            stream.sendall(message if isinstance(message, bytes) else frame(message))
    return work


def drip(stream):
    """A byte now and then, for as long as somebody reads."""
    stream.recv(1 << 16)
    stream.sendall(struct.pack("<I", 1 << 20))
    while True:
        stream.sendall(b" ")
        time.sleep(.2)


def flood(stream):
    """As many bytes as are read, under the largest length."""
    stream.recv(1 << 16)
    stream.sendall(struct.pack("<I", (1 << 29) - 1))
    while True:
        stream.sendall(b"[" * (1 << 16))


def be_silent(stream):
    time.sleep(10 * PATIENCE)


ANSWERS = {
    "silence": be_silent,
    "drip": drip,
    "flood": flood,
    "the end": lambda stream: None,
    "half a length": send(b"\x01"),
    "no JSON": send(b"\x04\0\0\0\xff\xfe\xfd\xfc"),
    "deep JSON": send(DEEP),
    "an error with escapes": send(error(ESCAPE)),
    "a long error": send(error("x" * 900_000)),
    "another schema": send({"schema": ESCAPE, "result": {}}),
    "a wrong answer": send(answer("synced", generation=2**64 - 1)),
    "a record": send(answer("mount", **RECORD)),
    "many answers": send(*[answer("done")] * 100),
    "nothing of an answer": send({"schema": SCHEMA, "result": {"answer": {}}}),
}
# Verbs on an image and a mount of root's that mallory has nothing to do with.
UNRELATED = (("ls", "{image}:/"), ("stat", "{image}:/"), ("check", "{image}"), ("inspect-internal", "dump-super", "{image}"),
             ("filesystem", "df", "{point}"), ("subvolume", "list", "{point}"))
# Verbs on mallory's own mount; each ends, and says what it was told in plain letters.
OWN = (("filesystem", "df", "{theirs}"), ("filesystem", "usage", "{theirs}"), ("subvolume", "list", "{theirs}"),
       ("filesystem", "label", "{theirs}"), ("stats", "{theirs}"), ("umount", "{theirs}"))
MOST_KIB = 128 << 10
CONTROLS = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae")


def bear(arena, kind, claims):
    """Verbs of root's on other images and mounts do not wait for mallory's server; those on its mount bear what it says."""
    image, point = arena.mount("mine", 0)
    _, theirs = arena.mount("theirs", MALLORY, f"allow_other,fsname={image}" if claims else "allow_other")
    arena.serve(arena.socket_of(theirs, MALLORY), MALLORY, ANSWERS[kind])
    for words in UNRELATED:
        arena.done(*(word.format(image=image, point=point) for word in words), seconds=PATIENCE / 2)
    never_ends = kind in ("silence", "drip")
    for words in OWN:
        if never_ends and words[0] != "umount":
            continue
        judge_own(arena, [word.format(theirs=theirs) for word in words], kind, never_ends)


def judge_own(arena, words, kind, never_ends):
    measured = ["-f", "%M", "-o", arena.path("peak"), "timeout", "-s", "KILL", "5" if never_ends else str(PATIENCE / 2), arena.tool, *words]
    ended = arena.run(*measured, tool="/usr/bin/time")
    if ended.code in (101, 134, 139) or b"panicked" in ended.err:
        raise Violation(f"{' '.join(words)} with {kind}: status {ended.code}: {ended.said()[-300:]}")
    if ended.code == 137 and not never_ends:
        raise Violation(f"{' '.join(words)} with {kind} did not end")
    found = CONTROLS.search(ended.out + ended.err)
    if found:
        raise Violation(f"{' '.join(words)} with {kind} shows {found.group()!r}")
    with open(arena.path("peak"), encoding="ascii") as file:
        peak = int(file.read().split()[-1])
    if peak > MOST_KIB:
        raise Violation(f"{' '.join(words)} with {kind} took {peak} KiB")


def bear_stopped(arena, words, claims):
    """As `bear`, with a server that is stopped: the mount itself does not answer either."""
    image, point = arena.mount("mine", 0)
    held = arena.image("held.img", MALLORY)
    their_point = arena.directory("theirs", MALLORY)
    options = f"owners=me,allow_other{f',fsname={image}' if claims else ''}"
    arena.done("mount", "-o", options, held, their_point, user=MALLORY)
    arena.stop(arena.server(held))
    arena.done(*(word.format(image=image, point=point) for word in words), seconds=PATIENCE / 2)


ODD_NAMES = ("\x1b[2J", "\x1b]0;owned\x07", "\r\nroot", "\x9b31m", "\x7f\x08\x08", "a\nb")
NAMED = (("ls", "{at}"), ("check", "{at}"), ("subvolume", "list", "{at}"), ("umount", "{at}"), ("mkdir", "{at}/file/x"),
         ("cat", "{at}/none"), ("check", "{held}"), ("mount", "-o", "remount,ro", "{held}", "{at}"), ("stat", "{mounted}/none"))


def name_oddly(arena, name):
    """What mallory calls a directory, a mount and a source does nothing to root's terminal."""
    at = arena.directory(f"x{name}", MALLORY)
    with open(f"{at}/file", "wb"):
        pass
    held, mounted = arena.image("held.img", MALLORY), arena.directory(f"m{name}", MALLORY)
    arena.done("mount", "-o", "owners=me", held, mounted, user=MALLORY)
    for words in NAMED:
        for user in (0, STRANGERS[0]):
            said = arena.run(*(word.format(at=at, held=held, mounted=mounted) for word in words), user=user)
            found = CONTROLS.search(said.out + said.err)
            if found:
                raise Violation(f"{' '.join(words)} with a name of {name!r} shows {found.group()!r}")


def r6(choose):
    for name in ODD_NAMES:
        yield f"a name of {name!r}", name_oddly, (name,)
    for kind in ANSWERS:
        yield kind, bear, (kind, choose.choice((True, False)))
    for words in UNRELATED:
        for claims in (True, False):
            yield f"stopped, {' '.join(words)}{', claimed' if claims else ''}", bear_stopped, (words, claims)
