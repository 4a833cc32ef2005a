"""PostgreSQL: each COMMIT is answered once its WAL is synced."""

import glob
import os
import shutil
import signal

from .database import Database, LineSession, kept_from, schema, transaction
from .processes import require

# Debian keeps the server's programs out of PATH.
DIRECTORIES = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
# Small, so that checkpoints and the recycling of WAL files fall into a run of seconds.
SETTINGS = ("listen_addresses=", "fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=16MB",
            "max_wal_size=32MB", "min_wal_size=32MB", "autovacuum_naptime=1", "wal_level=replica",
            "dynamic_shared_memory_type=mmap", "restart_after_crash=off")


def program(name):
    return shutil.which(name, path=os.pathsep.join([*DIRECTORIES, os.environ["PATH"]])) or name


class Session(LineSession):
    def __init__(self, runtime, log):
        super().__init__([program("psql"), "-X", "-q", "-A", "-t", "-F", " ", "-v", "ON_ERROR_STOP=1", "-h", runtime,
                          "-U", "postgres", "postgres"], "\\echo {}", log)

    def setup(self):
        self.execute("CREATE EXTENSION amcheck;", *schema("TEXT"))

    def transact(self, client, number, body):
        self.execute("BEGIN;", *transaction(client, number, body), "COMMIT;")

    def disturb(self, number):
        self.execute("VACUUM stored;" if number % 3 == 0 else "CHECKPOINT;")

    def state(self):
        counters = self.execute("SELECT client, number FROM counters;")
        rows = self.execute("SELECT client, number, md5(body) FROM stored;")
        return kept_from(map(str.split, counters), map(str.split, rows))


class PostgreSQL(Database):
    NEEDS = tuple(program(name) for name in ("initdb", "postgres", "psql", "pg_amcheck", "pg_dump", "pg_checksums"))
    USER = "postgres"

    def create(self):
        require(program("initdb"), "--pgdata", self.data, "--username=postgres", "--auth=trust", "--data-checksums",
                user=self.USER, group=self.USER, extra_groups=[], cwd="/")

    def start(self):
        words = [word for setting in SETTINGS for word in ("-c", setting)]
        self.launch(program("postgres"), "-D", self.data, "-k", self.runtime, *words)

    def stop(self):
        self.halt(signal.SIGINT)

    def connect(self):
        session = Session(self.runtime, f"{self.directory}/psql.log")
        session.execute("SELECT 1;")
        return session

    def verify(self):
        common = ("-h", self.runtime, "-U", "postgres")
        require(program("pg_amcheck"), *common, "--all", "--heapallindexed", "--parent-check", "--install-missing")
        require(program("pg_dump"), *common, "--file=/dev/null", "postgres")

    def verify_files(self):
        require(program("pg_checksums"), "--check", self.data, user=self.USER, group=self.USER, extra_groups=[],
                cwd="/")
