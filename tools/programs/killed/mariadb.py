"""MariaDB: InnoDB's log and the binary log are synced at each commit, and must agree after a crash."""

import os
import signal

from .database import Database, LineSession, kept_from, schema, transaction
from .processes import Failed, require

SETTINGS = ("--skip-networking", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--log-bin=binary",
            "--server-id=1", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--max-binlog-size=1M",
            "--skip-name-resolve", "--max-allowed-packet=16M")


class Session(LineSession):
    def __init__(self, socket, log):
        super().__init__(["mariadb", "--no-defaults", "--batch", "--skip-column-names", "--unbuffered",
                          "--skip-reconnect", "--user=root", f"--socket={socket}", "mysql"], "SELECT '{}';", log)

    def setup(self):
        self.execute("CREATE DATABASE tried;", "USE tried;", *schema("MEDIUMTEXT"))

    def transact(self, client, number, body):
        self.execute("USE tried;", "BEGIN;", *transaction(client, number, body), "COMMIT;")

    def disturb(self, number):
        # The last makes InnoDB write its dirty pages soon.
        self.execute(("FLUSH TABLES;", "FLUSH BINARY LOGS;", "OPTIMIZE TABLE tried.counters;",
                      "SET GLOBAL innodb_max_dirty_pages_pct = 0;")[number % 4])

    def state(self):
        counters = self.execute("SELECT client, number FROM tried.counters;")
        rows = self.execute("SELECT client, number, MD5(body) FROM tried.stored;")
        return kept_from(map(str.split, counters), map(str.split, rows))


class MariaDB(Database):
    NEEDS = ("mariadbd", "mariadb-install-db", "mariadb", "mariadb-check")
    USER = "mysql"

    def socket(self):
        return os.path.join(self.runtime, "socket")

    def create(self):
        require("mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--skip-test-db",
                "--auth-root-authentication-method=normal", user=self.USER, group=self.USER, extra_groups=[], cwd="/")
        # That program does not sync the files of the system tables (*.MAI, *.MAD).
        self.sync()

    def start(self):
        self.launch("mariadbd", "--no-defaults", f"--datadir={self.data}", f"--socket={self.socket()}",
                    f"--pid-file={self.runtime}/pid", *SETTINGS)

    def stop(self):
        self.halt(signal.SIGTERM)

    def connect(self):
        session = Session(self.socket(), f"{self.directory}/mariadb.log")
        session.execute("SELECT 1;")
        return session

    def verify(self):
        words = require("mariadb-check", "--no-defaults", "--user=root", f"--socket={self.socket()}",
                        "--all-databases", "--check", "--extended")
        lines = words.splitlines()
        # The program's status is 0 also where a table is damaged.
        wrong = [line for line in lines if line.split()[-1:] != ["OK"]]
        if wrong or not any(line.startswith("tried.stored ") for line in lines):
            raise Failed(f"mariadb-check: {'; '.join(wrong or lines)[-600:]}")
