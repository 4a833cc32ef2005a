"""A place where users attack each other: a mount namespace with users, images, mounts and sockets of its own."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

# The one whose mounts and images root meets, and others.
MALLORY, VICTIM, STRANGERS = 50_101, 50_102, (50_103, 50_104, 50_105)
USERS = {"mallory": MALLORY, "victim": VICTIM, "bert": STRANGERS[0], "carl": STRANGERS[1], "dora": STRANGERS[2]}
SCHEMA = "vlinder.control/1"
IMAGE_BYTES = "128M"
# A verb that has to end has not, on a machine that is busy.
PATIENCE = 60


class Violation(Exception):
    """A rule was broken."""


class Ended:
    """How a command ended."""

    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def said(self):
        return (self.out + self.err).decode(errors="replace")


def in_namespace():
    """Goes on in a mount namespace in which /tmp, /dev/fuse, /run/vlinder and the users are this program's own."""
    if os.environ.get("VLINDER_STRANGERS") != "inside":
        environment = {**os.environ, "VLINDER_STRANGERS": "inside"}
        os.execvpe("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv], environment)
    # Everything below belongs to this namespace, and goes with it.
    must("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/mnt")
    os.mknod("/mnt/fuse", 0o020_666, os.makedev(10, 229))
    os.chmod("/mnt/fuse", 0o666)
    must("mount", "--bind", "/mnt/fuse", "/dev/fuse")
    shadow("/etc/fuse.conf", b"user_allow_other\n")
    with open("/etc/passwd", "rb") as file:
        known = file.read()
    lines = "".join(f"{name}:x:{number}:{number}::/tmp:/bin/sh\n" for name, number in USERS.items())
    shadow("/etc/passwd", known + lines.encode())
    must("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    os.makedirs("/run/vlinder", mode=0o711, exist_ok=True)
    must("mount", "-t", "tmpfs", "-o", "mode=711", "tmpfs", "/run/vlinder")
    os.environ.pop("XDG_RUNTIME_DIR", None)
    os.chdir("/tmp")


def shadow(path, content):
    if not os.path.exists(path):
        return
    own = f"/mnt/{os.path.basename(path)}"
    with open(own, "wb") as file:
        file.write(content)
    must("mount", "--bind", own, path)


def must(*command):
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")


def is_mounted(path):
    return bool(mount_lines(path))


def mount_lines(path):
    """The lines of the table of mounts for a place, each as its fields."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace", newline="") as table:
        lines = [line.split(" ") for line in table.read().split("\n") if line]
    return [fields for fields in lines if fields[4] == os.path.realpath(path)]


def flags_of(path):
    return set(mount_lines(path)[-1][5].split(","))


def frame(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("<I", len(body)) + body


def request(verb, mount=None, **fields):
    message = {"schema": SCHEMA, "request": {"verb": verb, **fields}}
    return message if mount is None else {**message, "mount": mount}


class Arena:
    """What one attack has: a directory of its own, and everything that it starts ends with it."""

    def __init__(self, tool, number):
        self.tool, self.top = tool, f"/tmp/{number}"
        self.children, self.stopped, self.sockets = [], [], []
        os.mkdir(self.top)
        os.chmod(self.top, 0o755)

    def path(self, name):
        return f"{self.top}/{name}"

    def directory(self, name, user=0, mode=0o755):
        path = self.path(name)
        os.makedirs(path, exist_ok=True)
        os.chown(path, user, user)
        os.chmod(path, mode)
        return path

    def run(self, *arguments, user=0, seconds=PATIENCE, environment=None, tool=None, cwd=None):
        """The command as a user calls it; one that does not end is a violation."""
        command = [tool or self.tool, *arguments]
        begun = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 user=user, group=user, extra_groups=[], cwd=cwd or self.top,
                                 env={**os.environ, **(environment or {})})
        try:
            out, err = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise Violation(f"{' '.join(arguments)} of user {user} did not end within {seconds} s") from None
        return Ended(child.returncode, out, err, time.monotonic() - begun)

    def done(self, *arguments, **how):
        """A verb that has to succeed, whatever goes on beside it."""
        ended = self.run(*arguments, **how)
        if ended.code:
            raise Violation(f"{' '.join(arguments)} of user {how.get('user', 0)}: {ended.said().strip()}")
        return ended

    def image(self, name, user=0, mode=0o644):
        path = self.path(name)
        self.done("mkfs", "--quiet", "-f", "-b", IMAGE_BYTES, path)
        os.chown(path, user, user)
        os.chmod(path, mode)
        return path

    def mount(self, name, user=0, options="allow_other"):
        """An image of a user's, mounted by that user. Gives both places."""
        image, point = self.image(f"{name}.img", user), self.directory(name, user)
        owners = "owners=me" if user else "owners=keep"
        self.done("mount", "-o", f"{owners},{options}".strip(","), image, point, user=user)
        return image, point

    def server(self, image):
        """The process that serves a mount."""
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if b"--serve" in words and image.encode() in words:
                return int(entry)
        raise RuntimeError(f"nobody serves {image}")

    def socket_of(self, point, user=0):
        device = mount_lines(point)[-1][2]
        places = ["/run/vlinder"] * (user == 0) + [f"/tmp/vlinder-{user}"]
        found = [f"{place}/{device}.sock" for place in places if os.path.exists(f"{place}/{device}.sock")]
        if not found:
            raise RuntimeError(f"{point} has no socket")
        return found[0]

    def fork(self, user, work):
        """Has a process of a user's work beside."""
        child = os.fork()
        if child:
            self.children.append(child)
            return child
        try:
            # What it starts ends with it.
            os.setsid()
            become(user)
            work()
        except OSError:
            pass
        except BaseException as error:
            print(f"the attacker failed: {error!r}", file=sys.stderr)
        finally:
            os._exit(0)

    def connect(self, path, user):
        """A connection of a user's: the kernel tells its server of the one who connects."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        child = os.fork()
        if not child:
            try:
                become(user)
                stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                stream.connect(path)
                socket.send_fds(theirs, [b"x"], [stream.fileno()])
            except OSError:
                theirs.send(b"-")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        _, numbers, _, _ = socket.recv_fds(ours, 1, 1)
        ours.close()
        theirs.close()
        if not numbers:
            return None
        stream = socket.socket(fileno=numbers[0])
        stream.settimeout(PATIENCE)
        self.sockets.append(stream)
        return stream

    def ask(self, path, user, message):
        """What the server answers; none where it ends the conversation."""
        stream = self.connect(path, user)
        if stream is None:
            return None
        return converse(stream, message)

    def serve(self, path, user, answer):
        """A server of a user's own at a mount's socket: `answer` gets the stream of each client."""
        def work():
            if os.path.lexists(path):
                os.unlink(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            os.chmod(path, 0o666)
            listener.listen(64)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            while True:
                stream, _ = listener.accept()
                if not os.fork():
                    try:
                        answer(stream)
                    finally:
                        os._exit(0)
                stream.close()
        before = os.stat(path).st_ino
        self.fork(user, work)
        for _ in range(500):
            if os.path.exists(path) and os.stat(path).st_ino != before and os.stat(path).st_mode & 0o777 == 0o666:
                return
            time.sleep(.01)
        raise RuntimeError(f"nobody listens at {path}")

    def stop(self, process):
        """A server that answers nothing."""
        os.kill(process, signal.SIGSTOP)
        self.stopped.append(process)

    def close(self):
        for stream in self.sockets:
            stream.close()
        for process in self.stopped:
            for number in (signal.SIGCONT, signal.SIGKILL):
                quietly(os.kill, process, number)
        for child in self.children:
            quietly(os.killpg, child, signal.SIGKILL)
            quietly(os.kill, child, signal.SIGKILL)
            quietly(os.waitpid, child, 0)
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace", newline="") as table:
            # A name may hold what else Python takes for a space.
            points = [unescaped(line.split(" ")[4]) for line in table.read().split("\n") if line]
        for point in reversed([point for point in points if point.startswith(f"{self.top}/")]):
            subprocess.run(["umount", "-i", "-q", "-l", point], check=False)
        shutil.rmtree(self.top, ignore_errors=True)


def unescaped(name):
    """A name as the table of mounts writes it."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), name)


def quietly(call, *arguments):
    try:
        call(*arguments)
    except (ProcessLookupError, ChildProcessError, PermissionError):
        pass


def become(user):
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def converse(stream, message):
    try:
        stream.sendall(message if isinstance(message, bytes) else frame(message))
    except OSError:
        # Refused, perhaps with words.
        pass
    return receive(stream)


def receive(stream):
    try:
        head = stream.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return None
        body = stream.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)
        return json.loads(body)
    except (OSError, ValueError):
        return None
