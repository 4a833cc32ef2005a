#!/usr/bin/env python3
"""Branches of `format` and `check` that were taken, as a page: coverage.py EXPORT.json (of `llvm-cov export`)."""

import json
import re
import sys

CRATES = ("format", "check")


def sides(file):
    """The two sides of each branch in a file's code, tests left out: (line, column, side) -> how often it was taken."""
    with open(file["filename"], encoding="utf-8") as source:
        lines = source.read().splitlines()
    tests = next((number for number, line in enumerate(lines, 1) if re.match(r"\s*mod tests \{", line)), len(lines) + 1)
    taken = {}
    for branch in file["branches"]:
        line, column, _, _, if_true, if_false = branch[:6]
        if line < tests:
            for side, count in (("true", if_true), ("false", if_false)):
                taken[line, column, side] = taken.get((line, column, side), 0) + count
    return taken


def main():
    with open(sys.argv[1], encoding="utf-8") as export:
        files = json.load(export)["data"][0]["files"]
    rows, missing = [], []
    for crate in CRATES:
        total = covered = 0
        for file in sorted(files, key=lambda file: file["filename"]):
            found = re.search(rf"crates/{crate}/src/(.*)", file["filename"])
            if not found:
                continue
            taken = sides(file)
            total += len(taken)
            covered += sum(1 for count in taken.values() if count)
            lines = {}
            for (line, _, side), count in sorted(taken.items()):
                if not count:
                    lines.setdefault(line, []).append(side)
            if lines:
                listed = ", ".join(f"{line} ({' and '.join(names)})" for line, names in lines.items())
                missing.append(f"| `{crate}/src/{found[1]}` | {listed} |")
        rows.append(f"| `{crate}` | {covered} | {total} | {100 * covered / max(total, 1):.1f} % |")
    print("# Branch coverage\n")
    print("`make coverage REPORT=docs/coverage.md`: the tests of `format` and `check`, and the inputs of the fuzz targets that are kept.\n")
    print("| crate | sides of branches taken | of | |\n|---|---|---|---|")
    print("\n".join(rows))
    print("\n## Sides that were never taken\n\n| file | line (side) |\n|---|---|")
    print("\n".join(missing))


main()
