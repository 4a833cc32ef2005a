#!/usr/bin/env python3
"""Tests of what judges the programs: each kind of loss is found, and what is right is not called lost."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import replace

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from killed import ledger  # noqa: E402
from killed.builds import SOURCES, generate, outcome, tear  # noqa: E402
from killed.containers import last_line  # noqa: E402
from killed.database import LineSession, SessionEnded, transaction  # noqa: E402
from killed.listing import differences, listing, lost_since, without_replay_times  # noqa: E402
from killed.processes import (Failed, adopt_orphans, call, descendants, kill_descendants, reap_orphans,  # noqa: E402
                              require)

LAST = 41


class InDirectory(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.top = holder.name

    def path(self, name):
        return os.path.join(self.top, name)

    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(content)


class LedgerFinds(InDirectory):
    def kept(self):
        return ledger.Kept(LAST, ledger.rows_after(1, LAST))

    def found(self, kept, asked=LAST + 1, acknowledged=LAST):
        return ledger.judge(1, asked, acknowledged, kept)

    def test_nothing_where_all_is_right(self):
        self.assertEqual(self.found(self.kept()), [])
        # A transaction that was asked for may be there without having been acknowledged.
        self.assertEqual(self.found(self.kept(), acknowledged=LAST - 1), [])

    def test_a_lost_acknowledgement(self):
        self.assertEqual(len(self.found(ledger.Kept(LAST - 1, ledger.rows_after(1, LAST - 1)))), 1)
        self.assertEqual(len(self.found(ledger.Kept())), 1)

    def test_a_row_that_is_missing_or_other_or_was_removed(self):
        for change in (lambda rows: rows.pop(LAST), lambda rows: rows.update({LAST: "0"}),
                       lambda rows: rows.update({1: ledger.digest(ledger.body(1, 1))})):
            kept = self.kept()
            change(kept.rows)
            self.assertEqual(len(self.found(kept)), 1)

    def test_a_transaction_that_is_there_in_part(self):
        kept = self.kept()
        kept.last += 1
        self.assertEqual(len(self.found(kept)), 1)

    def test_what_nobody_asked_for(self):
        self.assertEqual(len(self.found(self.kept(), asked=LAST - 1, acknowledged=0)), 1)

    def test_the_statements_do_what_the_ledger_expects(self):
        import sqlite3
        connection = sqlite3.connect(":memory:")
        connection.executescript("CREATE TABLE stored (client, number, body); CREATE TABLE counters (client, number);"
                                 "INSERT INTO counters VALUES (1, 0);")
        for number in range(1, LAST + 1):
            connection.executescript("".join(transaction(1, number, ledger.body(1, number))))
        rows = {number: ledger.digest(body) for number, body in connection.execute("SELECT number, body FROM stored")}
        self.assertEqual(rows, ledger.rows_after(1, LAST))
        self.assertEqual(connection.execute("SELECT number FROM counters").fetchall(), [(LAST,)])

    def test_a_ledger_is_read_as_it_was_written(self):
        self.assertEqual(ledger.read(self.path("none")), (0, 0))
        written = ledger.Ledger(self.path("some"))
        for number in (1, 2):
            written.ask(number)
            self.assertEqual(ledger.read(self.path("some")), (number, number - 1))
            written.acknowledge(number)
        self.assertEqual(ledger.read(self.path("some")), (2, 2))


class ListingFinds(InDirectory):
    def setUp(self):
        super().setUp()
        for name in ("a/file", "a/other", "b/file"):
            self.write(name, "content of " + name)
        os.symlink("file", self.path("a/link"))
        self.before = listing(self.top)
        # Longer than the kernel's clock of files stands still.
        time.sleep(0.02)

    def change(self, name, content):
        """Changes bytes and sets the times back: the change time alone tells."""
        status = os.stat(self.path(name))
        self.write(name, content)
        os.utime(self.path(name), ns=(status.st_atime_ns, status.st_mtime_ns))

    def test_every_kind_of_difference(self):
        self.assertEqual(differences(self.before, listing(self.top)), [])
        changes = (lambda: self.change("a/file", "CONTENT of a/file"), lambda: os.chmod(self.path("a/other"), 0o700),
                   lambda: os.unlink(self.path("b/file")), lambda: os.utime(self.path("a"), (1, 1)))
        for change in changes:
            before = listing(self.top)
            change()
            self.assertNotEqual(differences(before, listing(self.top)), [])

    def test_what_was_changed_later_is_not_lost(self):
        self.assertEqual(lost_since(self.before, listing(self.top)), ([], len(self.before)))
        self.change("a/file", "later")
        os.unlink(self.path("b/file"))
        os.rmdir(self.path("b"))
        lost, unchanged = lost_since(self.before, listing(self.top))
        # Unchanged are a, a/other and a/link.
        self.assertEqual((lost, unchanged), ([], 3))

    def test_what_is_other_or_gone_without_a_later_time_is_lost(self):
        found = listing(self.top)
        found["a/file"] = replace(found["a/file"], content=b"other")
        self.assertEqual(len(lost_since(self.before, found)[0]), 1)
        del found["b/file"], found["b"]
        self.assertEqual(len(lost_since(self.before, found)[0]), 3)

    def test_names_alone_may_come_without_a_later_time(self):
        found = listing(self.top)
        found["a/new"] = replace(found["a/other"], inode=0)
        found["a"] = replace(found["a"], size=found["a"].size + 6)
        self.assertEqual(lost_since(self.before, found)[0], [])
        found["a"] = replace(found["a"], mode=found["a"].mode ^ 1)
        self.assertEqual(len(lost_since(self.before, found)[0]), 1)
        del found["a/new"]
        found["a"] = replace(self.before["a"], size=0)
        self.assertEqual(len(lost_since(self.before, found)[0]), 1)

    def test_two_replays_may_stamp_the_same_inodes_at_other_times(self):
        newest = max(entry.changed_ns for entry in self.before.values())
        one, other = ({**self.before, "a/file": replace(self.before["a/file"], changed_ns=newest + later)}
                      for later in (20, 30))
        self.assertEqual(len(differences(one, other)), 1)
        settled = [without_replay_times(listed, newest + 10) for listed in (one, other, self.before)]
        self.assertEqual(differences(settled[0], settled[1]), [])
        self.assertEqual(len(differences(settled[0], settled[2])), 1)

    def test_a_file_that_was_renamed_later_is_not_lost(self):
        os.rename(self.path("a/file"), self.path("b/moved"))
        found = listing(self.top)
        # As if the log had brought the name alone.
        found["a"] = self.before["a"]
        self.assertEqual(lost_since(self.before, found)[0], [])


class BuildsFind(InDirectory):
    def test_bytes_that_were_never_written(self):
        right = b"x" * 10_000
        for found in (b"", right, right[:5000], bytes(64) + right[64:600], bytes(10_000)):
            self.assertIsNone(tear(found, right))
        for found in (right + b"x", b"y" + right[1:], right[:5000] + b"y"):
            self.assertIsNotNone(tear(found, right))

    def test_the_outcome_is_reckoned_right(self):
        generate(self.top)
        self.assertEqual(len([name for name in os.listdir(self.path("source")) if name.endswith(".c")]), SOURCES + 1)
        self.assertTrue(outcome(self.top).isdigit())


class ProcessesAre(InDirectory):
    def test_commands_that_fail_or_hang_are_found(self):
        self.assertEqual(call("sh", "-c", "echo words; exit 3"), (3, "words"))
        with self.assertRaises(Failed):
            require("false")
        with self.assertRaises(Failed):
            call("sleep", "10", seconds=0.1)

    def test_killed_wherever_they_have_gone(self):
        adopt_orphans()
        away = subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 1000 & sleep 1000' & exit 0"])
        away.wait()
        self.assertGreater(len(descendants()), 0)
        kill_descendants()
        reap_orphans([])
        self.assertEqual(descendants(), [])

    def test_a_session_ends_at_the_first_statement_that_fails(self):
        session = LineSession(["sh", "-e"], "echo {}", self.path("log"))
        self.assertEqual(session.execute("echo one", "echo two"), ["one", "two"])
        with self.assertRaises(SessionEnded):
            session.execute("echo one", "false", "echo two")
        session.process.stdout.close()
        session.process.stdin = None
        session.process.wait()

    def test_only_whole_lines_count(self):
        self.write("lines", "1\n2\n37")
        self.assertEqual(last_line(self.path("lines")), 2)


if __name__ == "__main__":
    signal.alarm(60)
    unittest.main()
