"""What a client asked for and what it was told, kept outside of the mount, and what that demands of a database.

Transaction n of a client inserts row n, sets the client's counter to n, and, if n is divisible by REMOVE_EVERY, removes
row n - REMOVE_EVERY + 1. So the counter alone says which rows must be there, and a transaction that is there in part
shows.
"""

import hashlib
import os
import random
from dataclasses import dataclass, field

REMOVE_EVERY = 4
SMALL_BYTES = (20, 3000)
# One row in so many is larger than a page of any of the databases.
LARGE_EVERY = 24
LARGE_BYTES = (20_000, 70_000)


def body(client, number):
    """The text of a row."""
    chooser = random.Random(f"{client}/{number}")
    length = chooser.randint(*(LARGE_BYTES if number % LARGE_EVERY == 0 else SMALL_BYTES))
    return chooser.randbytes((length + 1) // 2).hex()[:length]


def digest(text):
    return hashlib.md5(text.encode()).hexdigest()


def removed_by(number):
    """The row that a transaction removes, if it does."""
    return number - REMOVE_EVERY + 1 if number % REMOVE_EVERY == 0 else None


def rows_after(client, last):
    """The rows with their digests after the transactions up to `last`."""
    gone = {removed_by(number) for number in range(1, last + 1)}
    return {number: digest(body(client, number)) for number in range(1, last + 1) if number not in gone}


@dataclass
class Kept:
    """What a database holds of a client: its counter and its rows' digests."""

    last: int = 0
    rows: dict = field(default_factory=dict)


class Ledger:
    """The file of one client. Each line is written at once: a client may be killed at any time."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def ask(self, number):
        os.write(self.file, f"asked {number}\n".encode())

    def acknowledge(self, number):
        os.write(self.file, f"acknowledged {number}\n".encode())


def read(path):
    """The last transaction that was asked for, and the last that was acknowledged; 0 for none."""
    last = {"asked": 0, "acknowledged": 0}
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                word, number = line.split()
                last[word] = int(number)
    except FileNotFoundError:
        pass
    return last["asked"], last["acknowledged"]


def judge(client, asked, acknowledged, kept):
    """Sentences about what a database should hold of a client and does not."""
    if kept.last < acknowledged:
        return [f"client {client}: transaction {acknowledged} was acknowledged, the last that is there is {kept.last}"]
    if kept.last > asked:
        return [f"client {client}: transaction {kept.last} is there, and the last that was asked for is {asked}"]
    expected = rows_after(client, kept.last)
    missing, surplus = sorted(expected.keys() - kept.rows.keys()), sorted(kept.rows.keys() - expected.keys())
    other = sorted(number for number in expected.keys() & kept.rows.keys() if expected[number] != kept.rows[number])
    found = [("are missing", missing), ("should have been removed", surplus), ("have another content", other)]
    return [f"client {client}: {len(rows)} rows {what}, the first is {rows[0]}" for what, rows in found if rows]
