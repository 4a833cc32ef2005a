#!/usr/bin/env python3
"""Tells every lie about a part of all fields of an image, and runs every verb on each: crates/cli/tests/it/hostile_fields.rs.

The verbs are those of a build with overflow checks and debug assertions, which cargo makes; the program that
--vlinder names has none and is not used. Prints one line of JSON. Needs cargo.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMAND = ["cargo", "test", "--quiet", "--package", "vlinder-cli", "--test", "hostile_fields", "--", "--nocapture", "lies"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", required=True, help="which part of the fields, of how many: 1/8")
    parser.add_argument("--seed", type=int, default=1, help="which structure of a kind lies")
    parser.add_argument("--vlinder", help="not used")
    arguments = parser.parse_args()
    part, _, parts = arguments.part.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        parser.error(f"--part {arguments.part} is not like 1/8")
    environment = {
        **os.environ,
        "VLINDER_HOSTILE_FIELDS": arguments.part,
        "VLINDER_HOSTILE_SEED": str(arguments.seed),
    }
    done = subprocess.run(COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, errors="replace")
    lines = done.stdout.splitlines()
    violations = [line.removeprefix("FAILED ") for line in lines if line.startswith("FAILED ")]
    summary = next((line for line in lines if "runs broke a bound" in line), None)
    if done.returncode != 0 and not violations:
        violations = ["the test failed: " + " / ".join(lines[-5:])]
    if summary is None and not violations:
        violations = ["the test said nothing of what it ran"]
    verdict = "fail" if violations else "pass"
    print(json.dumps({"verdict": verdict, "summary": summary, "violations": violations}))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
