"""The manifest and the comparison of listings find what they are there to find."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from full_disk.emptying import Emptying  # noqa: E402
from full_disk.ending import Judge  # noqa: E402
from full_disk.listings import Held, compare_listings, listing  # noqa: E402
from full_disk.manifest import Manifest  # noqa: E402
from full_disk.records import Whole  # noqa: E402
from full_disk.scattered import STRIDE_BYTES, ZERO_SECTOR, Scattered, sector  # noqa: E402


class InDirectory(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.top = holder.name

    def write(self, path, content):
        path = os.path.join(self.top, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


class ManifestFinds(InDirectory):
    def setUp(self):
        super().setUp()
        self.manifest, self.record = Manifest(), Whole(is_kept=True)
        self.record.become(b"first bytes")
        self.manifest.store("file", self.record)
        self.write("file", b"first bytes")

    def found(self):
        self.manifest.settle(True)
        return self.manifest.compare(self.top)[0]

    def test_nothing_where_all_is_right(self):
        self.assertEqual(self.found(), [])

    def test_other_bytes_and_sizes(self):
        for content in (b"other bytes", b"first byte", b""):
            self.write("file", content)
            self.assertEqual(len(self.found()), 1, content)

    def test_a_missing_file_also_where_its_bytes_are_not_known(self):
        self.record.is_known = False
        self.assertEqual(self.found(), [])
        os.unlink(os.path.join(self.top, "file"))
        self.assertEqual(len(self.found()), 1)

    def test_a_removed_file_that_is_there(self):
        self.manifest.remove("file")
        self.assertEqual(len(self.found()), 1)

    def test_an_accepted_write_that_is_not_there(self):
        self.record.write(6, b"words and more")
        self.assertEqual(len(self.found()), 1)
        self.write("file", b"first words and more")
        self.assertEqual(self.found(), [])
        self.record.truncate(30)
        self.assertEqual(len(self.found()), 1)

    def test_other_owners_and_attributes(self):
        self.record.owner = (os.getuid() + 1, os.getgid())
        self.assertEqual(len(self.found()), 1)
        self.record.owner, self.record.attributes = None, {"user.x": b""}
        self.assertEqual(len(self.found()), 1)

    def test_what_a_snapshot_lacks(self):
        self.manifest.remove("removed")
        self.manifest.snapshot("snapshot")
        self.assertEqual(len(self.found()), 1)
        self.write("snapshot/file", b"first bytes")
        self.assertEqual(self.found(), [])
        self.write("snapshot/removed", b"")
        self.assertEqual(len(self.found()), 1)

    def test_doubts_only_after_a_sync_that_failed(self):
        self.write("file", b"other bytes")
        self.manifest.settle(False)
        self.assertEqual(self.found(), [])
        self.record.begin_change()
        self.assertEqual(self.found(), [])


class ScatteredFinds(InDirectory):
    def setUp(self):
        super().setUp()
        self.record = Scattered(3)
        self.record.write(1, 0)
        self.record.sync(True)

    def difference(self, *sectors, tail=b""):
        self.write("db", b"".join(part + ZERO_SECTOR for part in sectors) + tail)
        return self.record.difference(os.path.join(self.top, "db"))

    def test_sectors_holes_and_sizes(self):
        own = sector(1, 0)
        self.assertEqual(self.difference(ZERO_SECTOR, own, ZERO_SECTOR), "")
        self.assertIn("extent 1", self.difference(ZERO_SECTOR, ZERO_SECTOR, ZERO_SECTOR))
        self.assertIn("extent 1", self.difference(ZERO_SECTOR, sector(2, 0), ZERO_SECTOR))
        self.assertIn("extent 0", self.difference(own, own, ZERO_SECTOR))
        self.assertIn("instead of", self.difference(ZERO_SECTOR, own))
        self.write("db", ZERO_SECTOR + own + own + bytes(3 * STRIDE_BYTES - 3 * len(own)))
        self.assertIn("hole", self.record.difference(os.path.join(self.top, "db")))

    def test_versions_before_and_after_a_sync(self):
        for is_done, is_old_allowed in ((False, True), (True, False)):
            version = self.record.next_version(1)
            old = sector(1, version - 1)
            self.record.write(1, version)
            self.record.sync(is_done)
            self.assertEqual(self.difference(ZERO_SECTOR, sector(1, version), ZERO_SECTOR), "")
            self.assertEqual(self.difference(ZERO_SECTOR, old, ZERO_SECTOR) == "", is_old_allowed)


class ListingsFind(InDirectory):
    def compare(self, held_bytes=0):
        own, peer = os.path.join(self.top, "own"), os.path.join(self.top, "peer")
        held = Held(held_bytes, own, peer) if held_bytes else None
        return compare_listings(listing(own), listing(peer), held)

    def test_names_sizes_and_bytes(self):
        self.write("own/file", b"bytes")
        self.write("peer/file", b"bytes")
        self.assertEqual(self.compare(), [])
        for content in (b"other", b"byte", b"bytes and more"):
            self.write("peer/file", content)
            self.assertEqual(len(self.compare()), 1, content)
        self.write("peer/file", b"bytes")
        self.write("peer/more", b"")
        self.assertEqual(len(self.compare()), 1)
        os.symlink("here", os.path.join(self.top, "own/more"))
        self.assertEqual(len(self.compare()), 1)

    def test_held_bytes_explain_no_more_than_they_are(self):
        self.write("own/file", b"bytes")
        self.write("peer/file", b"bits.")
        os.link(os.path.join(self.top, "own/file"), os.path.join(self.top, "own/name"))
        os.link(os.path.join(self.top, "peer/file"), os.path.join(self.top, "peer/name"))
        self.assertEqual(self.compare(3), [])
        self.assertEqual(len(self.compare(2)), 1)
        self.write("peer/file", b"by")
        self.assertEqual(self.compare(3), [])
        self.assertEqual(len(self.compare(2)), 1)
        self.write("peer/file", b"bytes and more")
        self.assertEqual(len(self.compare(100)), 1)


class RunWithLinuxAlone:
    """A run whose workload leaves so many names on Linux's own file system."""

    def __init__(self, left):
        self.left, self.violations, self.report = left, [], {}

    def left_by_linux_alone(self):
        return self.left


class NamesLeftByLinux(unittest.TestCase):
    def violations(self, left, by_linux_alone):
        run = RunWithLinuxAlone(by_linux_alone)
        judge = Judge(run, "image")
        judge.emptied["linux"] = Emptying(left=left)
        judge.judge_names_left_by_linux()
        return len(run.violations)

    def test_are_a_violation_unless_linux_leaves_some_of_its_own_fill(self):
        self.assertEqual(self.violations(0, 0), 0)
        self.assertEqual(self.violations(3, 0), 1)
        self.assertEqual(self.violations(3, None), 1)
        self.assertEqual(self.violations(3, 200), 0)


if __name__ == "__main__":
    unittest.main()
