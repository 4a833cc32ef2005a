#!/usr/bin/env python3
"""One client of a database, started by run.py: it works until the database goes away.

A client writes to its ledger what it asks for before it asks, and what was acknowledged after that. The client whose
number is DISTURBER asks for checkpoints and the like instead.
"""

import itertools
import json
import random
import sys
import time

sys.dont_write_bytecode = True

from killed import programs  # noqa: E402
from killed.database import DISTURBER, SessionEnded  # noqa: E402
from killed.ledger import Ledger, body  # noqa: E402


def work(session, client, path):
    records = Ledger(path)
    for number in itertools.count(1):
        records.ask(number)
        session.transact(client, number, body(client, number))
        records.acknowledge(number)


def disturb(session, seed):
    chooser = random.Random(f"{seed}/disturber")
    for number in itertools.count(1):
        time.sleep(chooser.uniform(0.1, 1))
        session.disturb(number)


def main():
    try:
        [order] = sys.argv[1:]
        wanted = json.loads(order)
    except ValueError:
        sys.exit("client.py takes one order in JSON; tools/programs/run.py starts it")
    session = programs.PROGRAMS[wanted["name"]].of(wanted["configuration"]).connect()
    try:
        if wanted["client"] == DISTURBER:
            disturb(session, wanted["seed"])
        else:
            work(session, wanted["client"], wanted["ledger"])
    except (SessionEnded, OSError) as error:
        print(f"client {wanted['client']}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
