"""Databases: clients that record each acknowledgement outside of the mount, and what must be there after a kill.

A database is described by one class, which the clients, processes of their own, make again from a name and a
configuration. Its session is the only thing that speaks to it.
"""

import json
import os
import subprocess
import sys

from . import ledger
from .processes import Failed, wait_until
from .trial import Trial, wait_seconds

CLIENTS = 3
START_SECONDS = 60
STOP_SECONDS = 120
FIRST_SECONDS = 60
# Transactions go on for so long before the kill.
LEAST_SECONDS, MOST_SECONDS = 0.5, 4
# The client that asks for checkpoints and the like, between the others' transactions.
DISTURBER = 0

SCHEMA = ("CREATE TABLE stored (client INTEGER NOT NULL, number INTEGER NOT NULL, body {text} NOT NULL, "
          "PRIMARY KEY (client, number));",
          "CREATE TABLE counters (client INTEGER PRIMARY KEY, number INTEGER NOT NULL);")


def schema(text):
    """Statements that make the tables; `text` is the type of large texts."""
    return [line.format(text=text) for line in SCHEMA] + [
        f"INSERT INTO counters VALUES ({client}, 0);" for client in range(1, CLIENTS + 1)]


def transaction(client, number, body):
    """The statements of one transaction, without its beginning and its commit."""
    removed = ledger.removed_by(number)
    statements = [f"INSERT INTO stored VALUES ({client}, {number}, '{body}');",
                  f"UPDATE counters SET number = {number} WHERE client = {client};"]
    if removed is not None:
        statements.append(f"DELETE FROM stored WHERE client = {client} AND number = {removed};")
    return statements


def kept_from(counters, rows):
    """What is there of each client, from rows of (client, number) and of (client, number, digest)."""
    kept = {int(client): ledger.Kept(int(number)) for client, number in counters}
    for client, number, digest in rows:
        kept[int(client)].rows[int(number)] = digest
    return kept


class SessionEnded(Exception):
    """The database said no, or nothing any more."""


class LineSession:
    """A database's own command-line client, which reads statements and writes rows as lines."""

    def __init__(self, command, mark, log, **more):
        """`mark` is the statement that has the client print the word in its place, and nothing else."""
        self.mark, self.count = mark, 0
        with open(log, "a", encoding="utf-8") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                            text=True, **more)

    def execute(self, *statements):
        """The lines that the statements gave, once all have succeeded: the client ends at the first that fails."""
        self.count += 1
        word = f"mark-{self.count}"
        try:
            self.process.stdin.write("\n".join([*statements, self.mark.format(word)]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise SessionEnded from error
        lines = []
        for line in self.process.stdout:
            if line.rstrip("\n") == word:
                return lines
            lines.append(line.rstrip("\n"))
        raise SessionEnded("\n".join(lines))

    def close(self):
        self.process.stdin.close()
        self.process.wait(STOP_SECONDS)


class Database(Trial):
    """The round that all databases share.

    A subclass has `create` (makes an empty database on the mount), `start`, `stop` (in good order), `connect` (a
    session), and `verify` (the program's own check, while it runs) and `verify_files` (the same after `stop`). A
    session has `setup`, `transact`, `disturb`, `state` and `close`.
    """

    SIZE = "1G"
    # The user that the program runs as.
    USER = None

    def __init__(self, settings, scratch):
        super().__init__(settings, scratch)
        self.data, self.runtime, self.process = os.path.join(self.point, "data"), None, None

    @classmethod
    def of(cls, configuration):
        """The same database in a client's process."""
        self = cls.__new__(cls)
        vars(self).update(configuration)
        return self

    def configuration(self):
        return {"point": self.point, "data": self.data, "runtime": self.runtime, "directory": self.directory,
                "mode": getattr(self, "mode", None)}

    def launch(self, *command):
        """Starts the program as its user, with its words in a log, and waits until it answers."""
        with open(self.path("program.log"), "ab") as log:
            more = {"user": self.USER, "group": self.USER, "extra_groups": []} if self.USER else {}
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                            start_new_session=True, **more)

        def answers():
            if self.process.poll() is not None:
                raise Failed(f"{command[0]} ended with {self.process.returncode} at its start: {self.last_words()}")
            return self.is_ready()

        wait_until(f"{command[0]} answers", answers, START_SECONDS)

    def is_ready(self):
        try:
            self.connect().close()
        except (SessionEnded, OSError):
            return False
        return True

    def last_words(self):
        with open(self.path("program.log"), encoding="utf-8", errors="replace") as log:
            return log.read()[-800:]

    def halt(self, number):
        """Has the program end in good order by a signal."""
        self.process.send_signal(number)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"the program lives {STOP_SECONDS} s after it was told to end: {self.last_words()}") from error
        if status:
            raise Failed(f"the program ended with {status}: {self.last_words()}")

    def own(self, path):
        os.makedirs(path, exist_ok=True)
        if self.USER:
            os.chmod(path, 0o750)
            subprocess.run(["chown", f"{self.USER}:", path], check=True)

    def start_client(self, number):
        script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "client.py")
        work = {"name": self.settings.program, "client": number, "seed": f"{self.settings.seed}/{self.number}",
                "ledger": self.ledger(number), "configuration": self.configuration()}
        with open(self.path("client.log"), "ab") as log:
            return subprocess.Popen([sys.executable, script, json.dumps(work)], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, cwd="/")

    def ledger(self, number):
        return self.path(f"client-{number}.ledger")

    def round(self):
        image = self.make_image()
        self.open(image)
        self.runtime = self.path("runtime")
        os.mkdir(self.runtime, 0o755)
        if self.USER:
            subprocess.run(["chown", f"{self.USER}:", self.runtime], check=True)
        self.own(self.data)
        self.create()
        self.start()
        session = self.connect()
        session.setup()
        session.close()
        self.work()
        self.crash()
        told = {client: ledger.read(self.ledger(client)) for client in range(1, CLIENTS + 1)}
        self.count("acknowledged", sum(acknowledged for _, acknowledged in told.values()))
        for mount in self.replays():
            self.start()
            session = self.connect()
            self.judge(mount, told, session.state())
            session.close()
            self.verify()
            self.stop()
            self.verify_files()

    def work(self):
        """Has the clients work until each was told of something, and then for a time that is drawn."""
        clients = [self.start_client(number) for number in range(CLIENTS + 1)]

        def all_were_told():
            if any(client.poll() is not None for client in clients):
                with open(self.path("client.log"), encoding="utf-8", errors="replace") as log:
                    raise Failed(f"a client ended before the kill: {log.read()[-800:]} {self.last_words()}")
            return all(ledger.read(self.ledger(client))[1] for client in range(1, CLIENTS + 1))

        wait_until("an acknowledgement for each client", all_were_told, FIRST_SECONDS)
        wait_seconds(self.random, LEAST_SECONDS, MOST_SECONDS)
        all_were_told()

    def judge(self, mount, told, kept):
        found = [sentence for client, (asked, acknowledged) in told.items()
                 for sentence in ledger.judge(client, asked, acknowledged, kept.get(client, ledger.Kept()))]
        if found:
            raise Failed(f"after the replay of {mount.name}: {'; '.join(found)}")
        self.count("rows_found", sum(len(client.rows) for client in kept.values()))

    def create(self):
        """Nothing has to be made before the program starts."""

    def verify(self):
        """Nothing can be checked while the program runs."""

    def verify_files(self):
        """Nothing can be checked once it has ended."""
