"""The programs by their names."""

from .builds import Builds
from .fio import Fio
from .mariadb import MariaDB
from .postgresql import PostgreSQL
from .redis import Redis
from .sqlite import SQLite

PROGRAMS = {
    "postgresql": PostgreSQL,
    "mariadb": MariaDB,
    "redis": Redis,
    "sqlite": SQLite,
    "builds": Builds,
    "fio": Fio,
}
