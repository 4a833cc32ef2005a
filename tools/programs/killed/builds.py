"""A project in C that make and ninja build on the mount, whole and with the server killed meanwhile.

Times decide what is built: after a complete build neither tool may find anything left to do. After a kill the sources
are as they were, objects that were synced are whole, and the build can be brought to its right end.
"""

import hashlib
import os
import subprocess
import time
from dataclasses import dataclass

from .processes import Failed, call, require
from .trial import Trial, wait_seconds

SOURCES = 60
HEADERS = 6
JOBS = "2"
FLAGS = "-O1 -Wall"

MAKEFILE = """\
OBJECTS := $(patsubst source/%.c,{build}/%.o,$(wildcard source/*.c))
{build}/program: $(OBJECTS)
\tcc -o $@ $(OBJECTS)
{build}/%.o: source/%.c
\tcc {flags} -MMD -MF $@.d -c $< -o $@
-include $(OBJECTS:=.d)
"""

NINJA = """\
builddir = {build}
rule compile
  command = cc {flags} -MMD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = cc -o $out $in
"""


@dataclass(frozen=True)
class Tool:
    """How a build tool is called, and how it says that there is nothing to do."""

    name: str
    build: tuple
    ask: tuple
    is_idle: object

    def directory(self):
        return f"build-{self.name}"


TOOLS = (
    Tool("make", ("make", "-s", "-j", JOBS), ("make", "-q"), lambda status, words: status == 0),
    Tool("ninja", ("ninja", "-j", JOBS), ("ninja", "-n"),
         lambda status, words: status == 0 and "no work to do" in words),
)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def source(number):
    header = number % HEADERS
    lines = "\n".join(f"    sum = sum * {3 + place} + (sum >> {1 + place % 7}) + PART_{header};" for place in range(30))
    return (f'#include "part{header}.h"\nunsigned part_{number}(unsigned sum) {{\n{lines}\n'
            f"    return sum + {number};\n}}\n")


def generate(top):
    """The project: sources that each include one of the headers, a main program, and a description for each tool."""
    for number in range(HEADERS):
        write(f"{top}/source/part{number}.h", f"#define PART_{number} {number + 11}u\n")
    for number in range(SOURCES):
        write(f"{top}/source/part{number}.c", source(number))
    calls = "\n".join(f"    sum = part_{number}(sum);" for number in range(SOURCES))
    names = "\n".join(f"unsigned part_{number}(unsigned);" for number in range(SOURCES))
    write(f"{top}/source/main.c", f'#include <stdio.h>\n{names}\nint main(void) {{\n    unsigned sum = 1;\n{calls}\n'
                                  f'    printf("%u\\n", sum);\n    return 0;\n}}\n')
    write(f"{top}/Makefile", MAKEFILE.format(build="build-make", flags=FLAGS))
    stems = sorted(name[:-2] for name in os.listdir(f"{top}/source") if name.endswith(".c"))
    edges = "".join(f"build build-ninja/{stem}.o: compile source/{stem}.c\n" for stem in stems)
    objects = " ".join(f"build-ninja/{stem}.o" for stem in stems)
    write(f"{top}/build.ninja", NINJA.format(build="build-ninja", flags=FLAGS) + edges +
          f"build build-ninja/program: link {objects}\n")
    for tool in TOOLS:
        os.makedirs(f"{top}/{tool.directory()}", exist_ok=True)


def outcome(top):
    """What the right program prints, reckoned without a compiler."""
    total = 1
    for number in range(SOURCES):
        for place in range(30):
            total = (total * (3 + place) + (total >> (1 + place % 7)) + number % HEADERS + 11) & 0xFFFFFFFF
        total = (total + number) & 0xFFFFFFFF
    return str(total)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def digests(directory):
    """The objects and the program of a build directory."""
    return {name: hashlib.sha256(content(f"{directory}/{name}")).hexdigest()
            for name in sorted(os.listdir(directory)) if name.endswith(".o") or name == "program"}


def tear(found, right):
    """What is wrong about a file that was being written. The assembler writes the header last, so that any byte may be
    zero still and the end may be missing; every other byte must be right.
    """
    if len(found) > len(right):
        return "is longer than it ever was"
    for place, byte in enumerate(found):
        if byte not in (0, right[place]):
            return f"has a byte at {place} that was never written there"
    return None


class Builds(Trial):
    NEEDS = ("make", "ninja", "cc")
    SIZE = "512M"

    def prepare(self):
        """The same project built outside of the mount: a compiler makes the same of the same."""
        self.reference = os.path.join(self.scratch, "reference")
        generate(self.reference)
        self.right = {}
        for tool in TOOLS:
            require(*tool.build, cwd=self.reference)
            self.right[tool] = digests(f"{self.reference}/{tool.directory()}")
            if len(self.right[tool]) != SOURCES + 2:
                raise Failed(f"{tool.name} made {len(self.right[tool])} files")
        self.sources = digests_of_sources(self.reference)

    def project(self):
        return f"{self.point}/project"

    def round(self):
        self.open(self.make_image())
        generate(self.project())
        if self.number == 0:
            for number in range(self.settings.builds):
                self.build_whole(TOOLS[number % len(TOOLS)])
        self.kill_a_build(TOOLS[self.number % len(TOOLS)])

    def build_whole(self, tool):
        """A build from nothing, and one after a header has changed, each complete for its tool."""
        directory = f"{self.project()}/{tool.directory()}"
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        self.complete(tool)
        os.utime(f"{self.project()}/source/part{self.random.randrange(HEADERS)}.h")
        status, words = call(*tool.ask, cwd=self.project())
        if tool.is_idle(status, words):
            raise Failed(f"{tool.name} does not see that a header has changed: {words}")
        self.complete(tool)
        self.count("complete_builds", 1)

    def complete(self, tool):
        """Builds what is left to build, after which nothing may be left, and all be right."""
        require(*tool.build, cwd=self.project())
        status, words = call(*tool.ask, cwd=self.project())
        if not tool.is_idle(status, words):
            raise Failed(f"{tool.name} has work to do after a complete build: status {status}: {words[-300:]}")
        found = digests(f"{self.project()}/{tool.directory()}")
        wrong = sorted(name for name in self.right[tool].keys() | found.keys()
                       if self.right[tool].get(name) != found.get(name))
        if wrong:
            raise Failed(f"{tool.name} built other bytes: {', '.join(wrong)}")
        printed = require(f"{self.project()}/{tool.directory()}/program")
        if printed != outcome(self.project()):
            raise Failed(f"the program of {tool.name} prints {printed}")

    def kill_a_build(self, tool):
        """Has the server killed during a build, some of which was synced."""
        directory = f"{self.project()}/{tool.directory()}"
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        self.sync()
        began = time.monotonic()
        with open(self.path("build.log"), "wb") as log:
            build = subprocess.Popen(tool.build, cwd=self.project(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_seconds(self.random, 0.2, 0.8)
        durable = self.whole_objects(tool)
        self.sync()
        wait_seconds(self.random, 0.0, 0.6)
        self.count("kills_during_a_build", int(build.poll() is None))
        self.report.setdefault("kill_after_seconds", []).append(round(time.monotonic() - began, 2))
        self.crash()
        build.wait()
        self.count("objects_synced", len(durable))
        for mount in self.replays():
            self.judge(mount, tool, durable)

    def whole_objects(self, tool):
        found = digests(f"{self.project()}/{tool.directory()}")
        return sorted(name for name, value in found.items() if self.right[tool].get(name) == value)

    def judge(self, mount, tool, durable):
        if digests_of_sources(self.project()) != self.sources:
            raise Failed(f"after the replay of {mount.name} sources differ")
        lost = sorted(set(durable) - set(self.whole_objects(tool)))
        if lost:
            raise Failed(f"after the replay of {mount.name} objects that were synced are not whole: {', '.join(lost)}")
        directory = f"{self.project()}/{tool.directory()}"
        for name in set(digests(directory)) - set(self.whole_objects(tool)):
            # No compiler syncs what it writes, so any file system may have it in part. It is built again.
            wrong = tear(content(f"{directory}/{name}"), content(f"{self.reference}/{tool.directory()}/{name}"))
            if wrong:
                raise Failed(f"after the replay of {mount.name} {name} {wrong}")
            os.unlink(f"{directory}/{name}")
            self.count("objects_torn", 1)
        for name in os.listdir(directory):
            if name.endswith(".d") and not os.path.getsize(f"{directory}/{name}"):
                os.unlink(f"{directory}/{name}")
        self.complete(tool)


def digests_of_sources(top):
    paths = [f"{top}/source/{name}" for name in sorted(os.listdir(f"{top}/source"))]
    return {os.path.relpath(path, top): content(path) for path in [*paths, f"{top}/Makefile", f"{top}/build.ninja"]}
