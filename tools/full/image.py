#!/usr/bin/env python3
"""A full image that is given (raw, or packed by zstd) is emptied by vlinder and by Linux."""

import os
import sys

from full_disk.program import main, parser

if __name__ == "__main__":
    arguments = parser(__doc__, has_size=False)
    arguments.add_argument("image", help="the image; it is copied")
    parsed = arguments.parse_args()
    sys.exit(main(f"image {os.path.basename(parsed.image)}", parsed, None))
