"""Commands with limits, and the end of every process that a program left behind."""

import ctypes
import os
import signal
import subprocess
import time

COMMAND_SECONDS = 300
# What fails is told with so many characters of its words.
MOST_WORDS = 600
PR_SET_CHILD_SUBREAPER = 36


class Failed(Exception):
    """Something that must not be; a sentence."""


class Skipped(Exception):
    """Something that this machine lacks; a sentence."""


def call(*command, seconds=COMMAND_SECONDS, **more):
    """Runs a command: its status, and what it said on both streams. Raises Failed if it does not end in time."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=seconds, **more)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command)}: no end after {seconds} s") from error
    return done.returncode, done.stdout.strip()


def require(*command, **more):
    """Runs a command that must succeed; what it said."""
    status, words = call(*command, **more)
    if status:
        raise Failed(f"{' '.join(command)}: status {status}: {words[-MOST_WORDS:]}")
    return words


def wait_until(what, condition, seconds=60):
    """Waits for a condition. Raises Failed."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def adopt_orphans():
    """Makes this process the parent of every descendant whose parent ends, so that `descendants` finds it."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def family():
    """The descendants of this process: their numbers with their states."""
    parents, states = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # The name of the program may hold spaces and brackets.
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        parents[int(name)], states[int(name)] = int(parent), state
    found, more = set(), {os.getpid()}
    while more:
        more = {process for process, parent in parents.items() if parent in more} - found
        found |= more
    return {process: states[process] for process in found}


def descendants(besides=()):
    """The numbers of the descendants that have not ended."""
    return [process for process, state in family().items() if state not in "ZX" and process not in besides]


def send(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


def kill_descendants(besides=()):
    """Kills every descendant, whichever session or group it has put itself into."""
    def none_is_left():
        left = descendants(besides)
        send(left, signal.SIGKILL)
        return not left

    wait_until("the end of the killed program", none_is_left)


def reap_orphans(known):
    """Forgets the descendants that have ended and that no Popen of `known` waits for."""
    own = {process.pid for process in known}
    for process, state in family().items():
        if state == "Z" and process not in own:
            try:
                os.waitpid(process, os.WNOHANG)
            except ChildProcessError:
                pass
