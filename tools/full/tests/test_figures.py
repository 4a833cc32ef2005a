"""What is missing after emptying is told from what another kind of chunk explains."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from full_disk.figures import MEBIBYTE, Space, missing_space  # noqa: E402


def space(used, unallocated, largest):
    return Space(used_bytes=used * MEBIBYTE, unallocated_bytes=unallocated * MEBIBYTE,
                 metadata_chunk_bytes=largest * MEBIBYTE)


class Missing(unittest.TestCase):
    def test_a_chunk_of_metadata_more_is_none_missing(self):
        linux = space(1, 500, 10)
        for own in space(1, 490, 10), space(1, 480, 20), space(2, 500, 10), space(0, 900, 1):
            self.assertEqual(missing_space(own, linux), [])

    def test_more_than_a_chunk_is(self):
        linux = space(1, 500, 10)
        for own in space(1, 489, 10), space(1, 479, 20), space(3, 500, 10):
            self.assertEqual(len(missing_space(own, linux)), 1)


if __name__ == "__main__":
    unittest.main()
