"""Attacks on root's verbs by way of mounts: flags that a remount drops (R1), paths that are swapped (R2), what is read-only
(R5), and places of sockets (R7)."""

import ctypes
import os
import shutil
import socket
import time

from arena import MALLORY, STRANGERS, Violation, flags_of, is_mounted, mount_lines, must, request

LIBC = ctypes.CDLL(None)

# R1: none of these names suid, dev or exec.
REMOUNTS = ("", "ro", "rw", "sync", "async", "noatime", "atime", "relatime", "strictatime", "nodiratime", "diratime", "dirsync",
            "defaults", "user", "users", "owner", "group", "noauto", "nofail", "compress=zstd", "allow_other", "default_permissions",
            "fsname=other", "x-systemd.automount", "ro,noatime", "rw,relatime", "user_id=0,group_id=0", "commit=5")



def keep_flags(arena, options, times, by_image):
    """A program of root's with a set-user-id bit, on a mount of a user's, stays without effect."""
    image, point = arena.mount("m", MALLORY)
    before = flags_of(point) & {"nosuid", "nodev", "noexec"}
    source = image if by_image else "anything"
    for _ in range(times):
        arena.run("mount", "-o", f"remount,{options}".strip(","), source, point)
    if not before <= flags_of(point):
        raise Violation(f"remount,{options} took {before - flags_of(point)} off")
    arena.done("umount", point)


def r1(choose):
    for options in REMOUNTS:
        yield f"remount,{options}", keep_flags, (options, choose.choice((1, 2)), choose.choice((True, False)))


# R2: how the place of a mount is named, and what is done there.
FORMS = {
    "plain": "{top}/d/m",
    "slash": "{top}/d/m/",
    "dots": "{top}/d/./m",
    "up": "{top}/d/m/../m",
    "two slashes": "{top}//d//m",
    "relative": "d/m",
    "link": "{top}/link",
    "link above": "{top}/above/m",
}
LED = (("umount",), ("mount", "-o", "remount,ro", "any"), ("mount", "-o", "remount,rw,noatime", "any"))


def lead_astray(arena, form, verb, swap):
    """While root's verb works on a mount of mallory's, the directory that it lies in leads now here, now there."""
    arena.directory("d", MALLORY)
    arena.directory("other")
    os.chown(arena.top, MALLORY, MALLORY)
    image = arena.image("disk.img", MALLORY)
    point, victim = arena.directory("d/m", MALLORY), arena.directory("other/m")
    must("mount", "-t", "tmpfs", "-o", "nosuid,nodev", "tmpfs", victim)
    before = flags_of(victim)
    arena.done("mount", "-o", "owners=me,allow_other", image, point, user=MALLORY)
    os.symlink(arena.path("d/m"), arena.path("link"))
    os.symlink("d", arena.path("above"))
    os.symlink(arena.path("other"), arena.path("false"))

    def swap_for_ever():
        one, two = arena.path("d"), arena.path("other" if swap == "directory" else "false")
        while True:
            exchange(one, two)
            if swap == "pauses":
                time.sleep(.001)

    arena.fork(MALLORY, swap_for_ever)
    path = FORMS[form].format(top=arena.top)
    for _ in range(6):
        arena.run(*verb, path)
    os.kill(arena.children[-1], 9)
    os.waitpid(arena.children.pop(), 0)
    lines = [line for line in lines_of_type("tmpfs") if line[4].startswith(arena.top)]
    if not lines:
        raise Violation(f"{' '.join(verb)} {path} unmounted another file system")
    if set(lines[0][5].split(",")) != before:
        raise Violation(f"{' '.join(verb)} {path} changed another mount to {lines[0][5]}, which had {sorted(before)}")


def lines_of_type(name):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        return [line.split() for line in table if f" - {name} " in line]


def exchange(one, two):
    at_cwd, both = -100, 2
    LIBC.renameat2(at_cwd, one.encode(), at_cwd, two.encode(), both)


def r2(choose):
    for form in FORMS:
        for verb in LED:
            yield f"{verb[0]} {form}", lead_astray, (form, verb, choose.choice(("link", "directory", "pauses")))


# R5: ways to be read-only, and what would change the file system.
def by_options(arena, image, point):
    arena.done("umount", point)
    arena.done("mount", "-o", "ro,allow_other,owners=keep", image, point)
    return point


def by_system(arena, image, point):
    must("mount", "-i", "-o", "remount,ro", point)
    return point


def by_remount(arena, image, point):
    arena.done("mount", "-o", "remount,ro", image, point)
    return point


def by_place(arena, image, point, inner=""):
    bound = arena.directory("bound")
    must("mount", "--bind", f"{point}/{inner}", bound)
    must("mount", "-i", "-o", "remount,bind,ro", bound)
    return bound


def by_inner_place(arena, image, point):
    return by_place(arena, image, point, "theirs")


READ_ONLY = {"ro": by_options, "mount -o remount": by_system, "vlinder remount": by_remount, "bind": by_place,
             "bind of a directory": by_inner_place}
CHANGES = (("subvolume", "create", "{at}/new"), ("subvolume", "snapshot", "{at}/sub", "{at}/shot"),
           ("subvolume", "delete", "{at}/sub"), ("property", "set", "{at}/sub", "ro", "true"),
           ("property", "set", "{at}", "compression", "zstd"), ("filesystem", "label", "{root}", "name"),
           ("subvolume", "set-default", "{at}/sub"), ("mkdir", "{at}/new"), ("rm", "-r", "{at}/file"))


def change_read_only(arena, way, user):
    """Nothing changes what is read-only, by no verb and by no user."""
    image, point = arena.mount("m")
    os.mkdir(f"{point}/theirs")
    arena.done("subvolume", "create", f"{point}/theirs/sub")
    with open(f"{point}/theirs/file", "w", encoding="ascii") as file:
        file.write("x")
    for name in ("", "/theirs", "/theirs/sub", "/theirs/file"):
        os.chmod(f"{point}{name}", 0o777)
        os.chown(f"{point}{name}", user, user)
    place = READ_ONLY[way](arena, image, point)
    at = place if way == "bind of a directory" else f"{place}/theirs"
    label = arena.done("filesystem", "label", point).out
    before = sorted(os.listdir(f"{point}/theirs"))
    for words in CHANGES:
        ended = arena.run(*(word.format(at=at, root=place) for word in words), user=user)
        if ended.code == 0 and words[0] != "rm":
            raise Violation(f"{' '.join(words)} of user {user} succeeded on {way}")
    after, new_label = sorted(os.listdir(f"{point}/theirs")), arena.done("filesystem", "label", point).out
    if (before, label) != (after, new_label):
        raise Violation(f"{way}: {before} {label} became {after} {new_label}")


def change_by_a_false_mount(arena, way, number):
    """A client that names another mount than its own, or none, changes nothing where all that it sees is read-only."""
    image, point = arena.mount("m")
    os.chmod(point, 0o777)
    path = arena.socket_of(point)
    READ_ONLY[way](arena, image, point)
    path = arena.socket_of(point)
    named = {"none": None, "0": 0, "large": 2**63, "own": int(mount_lines(point)[-1][0]), "root": 1}[number]
    if way.startswith("bind"):
        # The writable place is not theirs: they see it, and may come by it.
        return
    for message in (request("subvolume-create", named, path="new", umask=0), request("label-set", named, label="x"),
                    request("by-call", named, request={"verb": "subvolume-create", "path": "new", "umask": 0})):
        answer = arena.ask(path, STRANGERS[0], message)
        answer_of_root = arena.ask(path, 0, message)
        for said in (answer, answer_of_root):
            if said is not None and "error" not in said.get("result", {}):
                raise Violation(f"{message['request']['verb']} with mount {named} on {way} is answered {said}")
    if "new" in os.listdir(point):
        raise Violation(f"a client that named mount {named} made a subvolume on {way}")


def r5(choose):
    for way in READ_ONLY:
        for user in (0, MALLORY, STRANGERS[0]):
            yield f"{way} by {user}", change_read_only, (way, user)
    for way in ("ro", "mount -o remount", "vlinder remount"):
        for number in ("none", "0", "large", "own", "root"):
            yield f"{way}, mount {number}", change_by_a_false_mount, (way, number)


# R7: what others put where the socket of a user's mount would be.
def plant(kind, path):
    """In the place of a directory for sockets, by another user."""
    makers = {
        "open directory": lambda: (os.mkdir(path), os.chmod(path, 0o777)),
        "closed directory": lambda: os.mkdir(path, 0o700),
        "sticky directory": lambda: (os.mkdir(path), os.chmod(path, 0o1777)),
        "file": lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)),
        "fifo": lambda: os.mkfifo(path),
        "socket": lambda: socket.socket(socket.AF_UNIX).bind(path),
        "link to nothing": lambda: os.symlink("/tmp/nothing", path),
        "link to itself": lambda: os.symlink(path, path),
        "link to /etc": lambda: os.symlink("/etc", path),
        "link to a device": lambda: os.symlink("/dev/zero", path),
    }
    makers[kind]()


def plant_all(kind, place):
    plant(kind, place)
    for number in range(50):
        os.mkdir(f"{place}-{number:016x}", 0o777)


def mount_anyway(arena, user, planted, runtime):
    place = f"/tmp/vlinder-{user}"
    shutil.rmtree(place, ignore_errors=True)
    environment = {} if runtime is None else {"XDG_RUNTIME_DIR": runtime.replace("TOP", arena.top)}
    if planted:
        child = arena.fork(STRANGERS[0], lambda: plant_all(planted, place))
        os.waitpid(child, 0)
        arena.children.remove(child)
    image, point = arena.image("disk.img", user), arena.directory("m", user)
    how = {"user": user, "environment": environment}
    arena.done("mount", "-o", "owners=me,allow_other", image, point, **how)
    try:
        arena.done("subvolume", "create", f"{point}/made", **how)
        arena.done("filesystem", "sync", point)
        arena.done("umount", point, **how)
        if is_mounted(point):
            raise Violation(f"{point} stays mounted")
    finally:
        for name in os.listdir("/tmp"):
            if name.startswith(f"vlinder-{user}"):
                path = f"/tmp/{name}"
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


RUNTIMES = (None, "", "/", "TOP", "TOP/none", "relative/path", "/dev/null", "/proc/self", "/etc/passwd", "/tmp/" + "long/" * 40,
            "TOP/with\nline", "/run", "/tmp", "/root")
PLANTED = ("open directory", "closed directory", "sticky directory", "file", "fifo", "socket", "link to nothing", "link to itself",
           "link to /etc", "link to a device")


def r7(choose):
    for kind in PLANTED:
        yield f"planted {kind}", mount_anyway, (MALLORY, kind, choose.choice(RUNTIMES))
    for runtime in RUNTIMES:
        yield f"XDG_RUNTIME_DIR={runtime!r}", mount_anyway, (MALLORY, None, runtime)
