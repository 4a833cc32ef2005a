#!/usr/bin/env python3
"""Runs a real program on a vlinder mount, kills the server while the program writes, and judges what is there.

Of each kill: both checkers find the image clean; vlinder's replay of the log on the image and Linux's on a copy show
the same files; the program starts on each, has everything that it acknowledged, and its own check passes. The images
are clean once more after that.

Prints one line of JSON. The exit status is 0 if nothing was violated, 1 if something was, 2 for wrong arguments or
where something needed is missing, which is a violation if VLINDER_REQUIRE is "all". Needs root, /dev/fuse,
btrfs-progs, a kernel with Btrfs, and the program.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True

# The module lies beside this file, and nothing is to be written there.
from killed.processes import Failed, Skipped, adopt_orphans  # noqa: E402
from killed.programs import PROGRAMS  # noqa: E402

MEMORY_DIRECTORY = "/dev/shm"
MEMORY_BYTES = 5 << 30


def default_directory():
    """In memory, if there is room."""
    if os.path.isdir(MEMORY_DIRECTORY) and shutil.disk_usage(MEMORY_DIRECTORY).free >= MEMORY_BYTES:
        return MEMORY_DIRECTORY
    return "/var/tmp"


def parser():
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("program", choices=PROGRAMS)
    top.add_argument("--vlinder", default="vlinder", help="the program to try (default: the one in PATH)")
    top.add_argument("--seed", type=int, default=1, help="of all that is random (default: %(default)s)")
    top.add_argument("--rounds", type=int, default=0, help="each with an image of its own (default: the program's)")
    top.add_argument("--options", default="", help="more mount options, joined by commas")
    top.add_argument("--size", default="", help="of the image (default: the program's)")
    top.add_argument("--builds", type=int, default=4,
                     help="complete builds, by make and ninja in turn (default: %(default)s)")
    top.add_argument("--cache", default="/var/cache/vlinder-programs",
                     help="where packages are kept that were downloaded (default: %(default)s)")
    top.add_argument("--dir", default=default_directory(), help="for images and mounts (default: %(default)s)")
    top.add_argument("--ordinary", default="/var/tmp",
                     help="an ordinary file system that can hold overlays (default: %(default)s)")
    top.add_argument("--keep", help="where to keep the images and logs of a run that failed")
    top.add_argument("--limit", type=int, default=3600, help="seconds until a run counts as hanging")
    return top


def lacking(arguments):
    """What this machine has not."""
    tools = ("btrfs", "mount", "losetup", *PROGRAMS[arguments.program].NEEDS)
    missing = [tool for tool in tools if not shutil.which(tool)]
    if not arguments.vlinder:
        missing.append("vlinder")
    if os.geteuid() != 0:
        missing.append("root")
    if not os.path.exists("/dev/fuse"):
        missing.append("/dev/fuse")
    return missing


def raise_hang(_number, _frame):
    raise Failed("no end within the limit")


def raise_exit(number, _frame):
    sys.exit(128 + number)


def run(arguments, result):
    """Does the rounds. Raises Failed or Skipped."""
    missing = lacking(arguments)
    if missing:
        raise Skipped(f"needs {', '.join(missing)}")
    adopt_orphans()
    scratch = tempfile.mkdtemp(prefix="vlinder-programs-", dir=arguments.dir)
    # The users of the databases go through it.
    os.chmod(scratch, 0o755)
    trial = PROGRAMS[arguments.program](arguments, scratch)
    try:
        signal.alarm(arguments.limit)
        trial.run()
    except (Failed, OSError, RuntimeError):
        result["round"] = trial.number
        trial.keep()
        raise
    finally:
        signal.alarm(0)
        trial.end()
        result["report"] = trial.report
        shutil.rmtree(scratch, ignore_errors=True)


def main():
    arguments = parser().parse_args()
    arguments.vlinder = shutil.which(arguments.vlinder)
    if arguments.vlinder:
        arguments.vlinder = os.path.abspath(arguments.vlinder)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, raise_exit)
    signal.signal(signal.SIGALRM, raise_hang)
    hidden = ("vlinder", "dir", "keep", "limit", "program", "cache", "ordinary")
    result = {"name": arguments.program,
              "parameters": {name: value for name, value in vars(arguments).items() if name not in hidden}}
    violations, started, verdict = [], time.monotonic(), "pass"
    try:
        run(arguments, result)
    except Skipped as error:
        result["reason"] = str(error)
        verdict = "fail" if os.environ.get("VLINDER_REQUIRE") == "all" else "skip"
        violations = [str(error)] if verdict == "fail" else []
    except (Failed, OSError, RuntimeError) as error:
        name = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
        verdict, violations = "fail", [f"{name}{error}"]
    result |= {"seconds": round(time.monotonic() - started, 1), "violations": violations, "verdict": verdict}
    print(json.dumps(result), flush=True)
    return {"pass": 0, "fail": 1, "skip": 2}[verdict]


if __name__ == "__main__":
    sys.exit(main())
