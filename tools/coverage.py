#!/usr/bin/env python3
"""Branches of `format` and `check` that were taken, as a page: coverage.py EXPORT.json PAGE (of `llvm-cov export`).

A branch is a condition as rustc's branch coverage sees it: of `if`, `while`, `if let`, `let … else`, `while let` and match guards,
each operand of `&&` and `||` by itself. It has two sides, and each side counts. Not branches are match arms, `?`, and what happens
in functions of the standard library (`filter`, `map_or`). A branch is known by its place in the source: what the instances of a
generic function, the crate built for its own tests and built for others, and several programs took of it is added up. Generic
functions that no program makes an instance of are not seen. Code of tests does not count: files of tests, and what is
`#[cfg(test)]`.

tools/coverage.toml has the reasons for the sides that are left, by function and condition, for these stay while lines move.
"""

import json
import pathlib
import re
import sys
import tomllib

CRATES = ("format", "check")
LEAST_PERCENT = 95


class Source:
    """A source file: which of its lines are tests, and what stands where."""

    def __init__(self, name):
        self.lines = pathlib.Path(name).read_text(encoding="utf-8").splitlines()
        self.tests = set()
        at = 0
        while at < len(self.lines):
            if self.lines[at].strip() == "#[cfg(test)]":
                begin = at
                # To the line that closes the item, or to the `;` of one that lies elsewhere.
                while not self.lines[at].rstrip().endswith(("{", ";")):
                    at += 1
                if self.lines[at].rstrip().endswith("{"):
                    close = re.match(r"\s*", self.lines[at])[0] + "}"
                    at = next(later for later in range(at, len(self.lines)) if self.lines[later] == close)
                self.tests.update(range(begin + 1, at + 2))
            at += 1

    def text(self, line, column, end_line, end_column):
        if line == end_line:
            # Columns count bytes.
            return self.lines[line - 1].encode()[column - 1 : end_column - 1].decode()
        parts = [self.lines[line - 1].encode()[column - 1 :].decode(), *self.lines[line : end_line - 1]]
        parts.append(self.lines[end_line - 1].encode()[: end_column - 1].decode())
        return " ".join(part.strip() for part in parts)

    def function(self, line):
        """The innermost function that begins above."""
        indent = len(re.match(r"\s*", self.lines[line - 1])[0])
        for above in range(line, 0, -1):
            found = re.match(r"(\s*)(?:pub(?:\([^)]*\))? )?(?:const )?(?:unsafe )?fn (\w+)", self.lines[above - 1])
            if found and (len(found[1]) < indent or above == line):
                return found[2]
        return ""


def read(export):
    """All branches outside of tests: (crate, file) -> (place, function, condition) -> [true, false], how often each was taken."""
    with open(export, encoding="utf-8") as stream:
        files = json.load(stream)["data"][0]["files"]
    branches = {}
    for file in files:
        found = re.search(r"/crates/(\w+)/src/(.*)", file["filename"])
        if not found or found[1] not in CRATES or re.search(r"(^|/)tests(\.rs|/)", found[2]):
            continue
        source = Source(file["filename"])
        of_file = branches.setdefault((found[1], found[2]), {})
        for line, column, end_line, end_column, if_true, if_false, *_ in file["branches"]:
            if line in source.tests:
                continue
            place = (line, column, end_line, end_column)
            key = (place, source.function(line), source.text(*place))
            taken = of_file.setdefault(key, [0, 0])
            taken[0] += if_true
            taken[1] += if_false
    return branches


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: coverage.py EXPORT.json PAGE   (make coverage calls it)")
    export, page = sys.argv[1:]
    with open(pathlib.Path(__file__).with_name("coverage.toml"), "rb") as stream:
        reasons = tomllib.load(stream)["reason"]
    branches = read(export)
    totals = {crate: [0, 0] for crate in CRATES}
    left = {}
    for (crate, file), of_file in sorted(branches.items()):
        for (_, function, condition), taken in sorted(of_file.items()):
            for side, count in zip(("true", "false"), taken):
                totals[crate][0] += count > 0
                totals[crate][1] += 1
                if not count:
                    left.setdefault((f"{crate}/src/{file}", function, condition, side), 0)
                    left[f"{crate}/src/{file}", function, condition, side] += 1
    explained = {tuple(side): reason["why"] for reason in reasons for side in reason["sides"]}
    unexplained = [side for side in left if side not in explained]
    outdated = [side for side in explained if side not in left]
    percents = {crate: 100 * taken / max(total, 1) for crate, (taken, total) in totals.items()}

    lines = ["# Branch coverage", ""]
    lines += ["Written by `make coverage REPORT=docs/coverage.md`: the tests of `format` and `check`, and the inputs of the fuzz targets that"]
    lines += ["are kept. What is counted, and how, is told in [`tools/coverage.py`](../tools/coverage.py)."]
    lines += ["", "| crate | sides of branches taken | of | |", "|---|---|---|---|"]
    lines += [f"| `{crate}` | {taken} | {total} | {percents[crate]:.1f} % |" for crate, (taken, total) in totals.items()]
    lines += ["", "## Sides that were never taken", ""]
    lines += ["The reasons stand in [`tools/coverage.toml`](../tools/coverage.toml)."]
    for reason in reasons:
        sides = [tuple(side) for side in reason["sides"] if tuple(side) in left]
        if sides:
            lines += ["", *reason["why"].strip().splitlines(), ""]
            lines += ["| file | function | condition | side |", "|---|---|---|---|"]
            lines += [row(side, left[side]) for side in sides]
    if unexplained:
        lines += ["", "Without a reason:", "", "| file | function | condition | side |", "|---|---|---|---|"]
        lines += [row(side, left[side]) for side in unexplained]
    with open(page, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")

    for text, sides in (("never taken, without a reason", unexplained), ("taken, or no more there, with a reason", outdated)):
        for side in sides:
            print(f"{text}: {side}", file=sys.stderr)
    for crate, percent in percents.items():
        print(f"{crate}: {percent:.1f} % of {totals[crate][1]} sides of branches", file=sys.stderr)
    if unexplained or outdated or min(percents.values()) < LEAST_PERCENT:
        sys.exit("coverage is not as it should be")


def row(side, count):
    file, function, condition, which = side
    condition = condition.replace("|", "\\|")
    return f"| `{file}` | `{function}` | `{condition}` | {which}{f' ({count} times)' if count > 1 else ''} |"


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        # What is no JSON is a ValueError.
        sys.exit(f"coverage.py: {error}; EXPORT.json is what `llvm-cov export --format=text` wrote")
