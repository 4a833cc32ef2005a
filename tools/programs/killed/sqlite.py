"""SQLite in both journal modes; the clients are processes that open the file themselves."""

import os
import sqlite3
import time

from .database import Database, SessionEnded, kept_from, schema, transaction
from .ledger import digest
from .processes import Failed, require

BUSY_SECONDS = 60
PAUSE_SECONDS = 0.002
# With a rollback journal a commit is the removal of the journal. FULL does not sync the directory after it, so that a
# cut of power may undo the last commit; EXTRA does. With a WAL each commit is a sync of the WAL.
SYNCHRONOUS = {"delete": "EXTRA", "wal": "FULL"}
# Pages after which the WAL is copied back; few, so that it happens often.
CHECKPOINT_PAGES = 50


class Session:
    def __init__(self, path, mode):
        self.connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        self.connection.create_function("md5", 1, digest)
        found = self.execute(f"PRAGMA journal_mode = {mode}")
        if found != [(mode,)]:
            raise Failed(f"the journal mode is {found}, not {mode}")
        self.execute(f"PRAGMA synchronous = {SYNCHRONOUS[mode]}")
        self.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        self.mode = mode

    def execute(self, statement):
        try:
            return self.connection.execute(statement).fetchall()
        except sqlite3.Error as error:
            raise SessionEnded(str(error)) from error

    def setup(self):
        for statement in schema("TEXT"):
            self.execute(statement)

    def transact(self, client, number, body):
        self.execute("BEGIN IMMEDIATE")
        for statement in transaction(client, number, body):
            self.execute(statement)
        self.execute("COMMIT")
        # SQLite has no queue for its lock: without a pause one client keeps the others away for seconds.
        time.sleep(PAUSE_SECONDS)

    def disturb(self, number):
        if self.mode == "wal":
            # A checkpoint that waits for readers keeps every other one away meanwhile.
            self.execute("PRAGMA busy_timeout = 300")
            self.execute("PRAGMA wal_checkpoint(TRUNCATE)" if number % 2 else "PRAGMA wal_checkpoint(PASSIVE)")
        else:
            self.execute("SELECT sum(length(body)) FROM stored")

    def state(self):
        return kept_from(self.execute("SELECT client, number FROM counters"),
                         self.execute("SELECT client, number, md5(body) FROM stored"))

    def close(self):
        self.connection.close()


class SQLite(Database):
    NEEDS = ("sqlite3",)
    ROUNDS = 6
    SIZE = "512M"

    def start(self):
        # Each mode in turn, as the first round of a kind chooses; a replay starts in the same mode.
        self.mode = ("wal", "delete")[self.number % 2]

    def stop(self):
        """There is no server."""

    def connect(self):
        return Session(os.path.join(self.data, "database"), self.mode)

    def last_words(self):
        return ""

    def verify_files(self):
        words = require("sqlite3", os.path.join(self.data, "database"), "PRAGMA integrity_check;",
                        "PRAGMA foreign_key_check;")
        if words != "ok":
            raise Failed(f"integrity_check: {words[-600:]}")
