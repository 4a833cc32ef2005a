"""Redis with an append-only file that is synced before each answer."""

import hashlib
import os
import signal
import socket

from . import ledger
from .database import CLIENTS, Database, SessionEnded
from .processes import Failed, require

ANSWER_SECONDS = 60


class Session:
    """Speaks the protocol of Redis."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_SECONDS)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        data = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(data), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in data)]
        self.socket.sendall(b"".join(parts))

    def answer(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise SessionEnded("no answer")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise SessionEnded(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if int(rest) < 0 else self.file.read(int(rest) + 2)[:-2]
        return None if int(rest) < 0 else [self.answer() for _ in range(int(rest))]

    def command(self, *words):
        self.send(*words)
        return self.answer()

    def setup(self):
        for client in range(1, CLIENTS + 1):
            self.command("SET", f"counter:{client}", 0)

    def transact(self, client, number, body):
        commands = [("HSET", f"stored:{client}", number, body), ("SET", f"counter:{client}", number)]
        removed = ledger.removed_by(number)
        if removed is not None:
            commands.append(("HDEL", f"stored:{client}", removed))
        for words in (("MULTI",), *commands):
            self.command(*words)
        answers = self.command("EXEC")
        if answers is None or len(answers) != len(commands):
            raise SessionEnded("EXEC did not take the transaction")

    def disturb(self, number):
        try:
            self.command("BGREWRITEAOF" if number % 3 else "BGSAVE")
        except SessionEnded as error:
            # One of the two may still be going on.
            if not any(word in str(error) for word in ("progress", "active", "background")):
                raise

    def state(self):
        kept = {}
        for client in range(1, CLIENTS + 1):
            answers = self.command("HGETALL", f"stored:{client}")
            rows = {int(number): hashlib.md5(body).hexdigest() for number, body in zip(answers[::2], answers[1::2])}
            kept[client] = ledger.Kept(int(self.command("GET", f"counter:{client}") or 0), rows)
        return kept

    def close(self):
        self.file.close()
        self.socket.close()


class Redis(Database):
    NEEDS = ("redis-server", "redis-check-aof", "redis-check-rdb")

    def start(self):
        self.launch("redis-server", "--port", "0", "--unixsocket", self.socket(), "--dir", self.data, "--appendonly",
                    "yes", "--appendfsync", "always", "--daemonize", "no")

    def socket(self):
        return os.path.join(self.runtime, "socket")

    def stop(self):
        self.halt(signal.SIGTERM)

    def connect(self):
        session = Session(self.socket())
        # While it reads its files, Redis takes connections and refuses commands.
        session.command("DBSIZE")
        return session

    def verify_files(self):
        directory = os.path.join(self.data, "appendonlydir")
        manifests = [name for name in os.listdir(directory) if name.endswith(".manifest")]
        if len(manifests) != 1:
            raise Failed(f"{len(manifests)} manifests of append-only files")
        words = require("redis-check-aof", os.path.join(directory, manifests[0]))
        if "All AOF files and manifest are valid" not in words:
            raise Failed(f"redis-check-aof: {words[-600:]}")
        for path in [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".rdb")] + [
                os.path.join(self.data, "dump.rdb")]:
            if os.path.exists(path):
                require("redis-check-rdb", path)
                self.count("rdb_files_checked", 1)
