#!/usr/bin/env python3
"""Attacks root and other users by way of images, mounts and control sockets, as one who has read the README would.

Each attack is one of the cases R1 to R8 in one of many forms: paths, links, races of renames, verbs, sizes, counts,
users, namespaces; the seed chooses what is not tried in all. Prints a line for each rule that was broken and one line
of JSON. The exit status is 0 if none was, 1 otherwise, 2 for wrong arguments or where something needed is missing.
Works in a mount namespace of its own. Needs root, /dev/fuse, fuse3, setpriv and unshare.
"""

import argparse
import json
import os
import random
import shutil
import sys
import time

sys.dont_write_bytecode = True

# The modules lie beside this file, and nothing is to be written there.
from arena import Arena, Violation, in_namespace  # noqa: E402
import files  # noqa: E402
import mounts  # noqa: E402
import servers  # noqa: E402

CASES = {"R1": mounts.r1, "R2": mounts.r2, "R3": files.r3, "R4": servers.r4, "R5": mounts.r5, "R6": servers.r6,
         "R7": mounts.r7, "R8": files.r8}
NEEDED = ("unshare", "setpriv", "fusermount3", "mount")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    parser.add_argument("--seed", type=int, default=1, help="chooses forms (default: 1)")
    parser.add_argument("--case", choices=list(CASES), action="append", help="of this case alone; may be given again")
    parser.add_argument("--few", type=int, help="so many attacks of each case, which the seed chooses")
    parser.add_argument("--seconds", type=float, help="ends after so long (default: when all is tried)")
    arguments = parser.parse_args()
    tool = shutil.which(arguments.vlinder)
    missing = [name for name in NEEDED if not shutil.which(name)]
    if not tool or missing or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print(f"run.py needs vlinder, root, /dev/fuse and {', '.join(NEEDED)}", file=sys.stderr)
        return 2
    tool = os.path.abspath(tool)
    in_namespace()
    # Where other users can run it.
    tool = shutil.copy(tool, "/tmp/vlinder")
    report = attack(arguments, tool)
    print(json.dumps(report))
    return 0 if report["verdict"] == "pass" else 1


def attack(arguments, tool):
    end = time.monotonic() + (arguments.seconds or 1e9)
    tried, violations, number = {}, [], 0
    for case in arguments.case or CASES:
        choose = random.Random(f"{arguments.seed} {case}")
        attacks = list(CASES[case](choose))
        if arguments.few:
            attacks = choose.sample(attacks, min(arguments.few, len(attacks)))
        tried[case] = 0
        for name, work, words in attacks:
            if time.monotonic() > end:
                break
            number += 1
            arena = Arena(tool, number)
            try:
                work(arena, *words)
            except (Violation, OSError, RuntimeError) as error:
                violations.append(f"{case} {name}: {error}")
                print(f"FAILED {violations[-1]}", flush=True)
            finally:
                arena.close()
            tried[case] += 1
    verdict = "fail" if violations or not sum(tried.values()) else "pass"
    return {"seed": arguments.seed, "tried": tried, "violations": violations, "verdict": verdict}


if __name__ == "__main__":
    sys.exit(main())
