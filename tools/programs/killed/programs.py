"""The programs by their names."""

from .builds import Builds
from .containers import Podman
from .debian import Debian
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
    "debootstrap": Debian,
    "podman": Podman,
}
