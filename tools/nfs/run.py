#!/usr/bin/env python3
"""Exports a mount through NFS: what clients see must be what is there. The same with the kernel's Btrfs.

The server is nfs-ganesha with its VFS back end, which names files by their handles (open_by_handle_at(2)), the
clients are libnfs's tools. Between the steps the kernel drops its caches, so that the mount's server has to find
files by handles alone. Needs root, nfs-ganesha-vfs, libnfs-utils, rpcbind.
"""

import argparse
import hashlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CONFIGURATION = """
NFS_CORE_PARAM {{ Protocols = 3, 4; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSv4 {{ Graceless = true; RecoveryBackend = fs; }}
EXPORT {{
  Export_Id = 77; Path = {mount}; Pseudo = /exported; Access_Type = RW; Squash = No_root_squash;
  SecType = sys; Transports = TCP; FSAL {{ Name = VFS; }}
}}
"""
PATIENCE = 20
NEEDED = ("ganesha.nfsd", "nfs-ls", "nfs-cp", "rpcbind", "pgrep", "mkfs.btrfs", "btrfs", "mount", "umount")


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def drop_caches():
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class Vlinder:
    """A mount of vlinder's."""

    def __init__(self, program):
        self.program = program

    def make(self, image):
        run(self.program, "mkfs", "-q", "-b", "512M", image)

    def mount(self, image, mount):
        run(self.program, "mount", image, mount)

    def unmount(self, mount):
        run(self.program, "umount", mount)

    def snapshot(self, source, target):
        run(self.program, "subvolume", "snapshot", source, target)


class Linux:
    """The kernel's Btrfs."""

    def make(self, image):
        with open(image, "wb") as file:
            file.truncate(512 << 20)
        run("mkfs.btrfs", "-q", image)

    def mount(self, image, mount):
        run("mount", "-o", "loop", image, mount)

    def unmount(self, mount):
        run("umount", mount)

    def snapshot(self, source, target):
        run("btrfs", "subvolume", "snapshot", source, target)


class Export:
    """ganesha, serving a mount until the end of a with statement."""

    def __init__(self, mount, directory):
        self.mount, self.directory = mount, directory

    def __enter__(self):
        configuration, log = self.directory / "ganesha.conf", self.directory / "ganesha.log"
        configuration.write_text(CONFIGURATION.format(mount=self.mount))
        os.makedirs("/run/ganesha", exist_ok=True)
        os.makedirs("/var/lib/nfs/ganesha", exist_ok=True)
        words = ["ganesha.nfsd", "-F", "-f", configuration, "-L", log, "-p", self.directory / "pid"]
        self.server = subprocess.Popen([str(word) for word in words])
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", 2049), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.2)
        self.server.kill()
        raise SystemExit(f"ganesha does not serve; its log is {log}:\n{log.read_text()[-2000:]}")

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait(PATIENCE)

    def address(self, version, path):
        root = self.mount if version == 3 else "/exported"
        return f"nfs://127.0.0.1{root}/{path}?version={version}"

    def list(self, version, path):
        """The status; kinds, sizes and names of files. Whose a file is goes through the host's table of names and is left out."""
        done = self.call("nfs-ls", self.address(version, path))
        lines = [line.split() for line in done.stdout.splitlines()]
        return done.returncode, sorted((line[0], line[-2], line[-1]) for line in lines if line[0][0] != "d")

    def read(self, version, path):
        out = self.directory / "out"
        out.unlink(missing_ok=True)
        done = self.call("nfs-cp", self.address(version, path), out)
        return digest(out.read_bytes()) if done.returncode == 0 else None

    def write(self, version, source, path):
        return self.call("nfs-cp", source, self.address(version, path)).returncode

    def call(self, *words):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def listing(directory):
    """As Export.list gives it, of what was put into a directory."""
    return 0, sorted(("-rw-r--r--", str(len(content)), name) for name, content in directory.items())


class Script:
    """What is done, and what clients must see of it."""

    def __init__(self, seed):
        chance = random.Random(seed)
        sizes = [0, 100, 5000, 300_000]
        self.first = {str(number): chance.randbytes(chance.choice(sizes)) for number in range(50)}
        self.copied = chance.randbytes(3_000_000)
        self.later = dict(self.first)
        del self.later["7"]
        self.later["8"] = b"again"

    def expected(self):
        seen = {"written": 0, "as it is there": digest(self.copied)}
        for version in (3, 4):
            for directory, files in (("dir/inner", self.later), ("snapshot/dir/inner", self.first)):
                seen["listed", version, directory] = listing(files)
                for name in ("7", "8"):
                    content = digest(files[name]) if name in files else None
                    seen["read", version, f"{directory}/{name}"] = content
            for path in ("dir/copied", "snapshot/dir/copied"):
                seen["read", version, path] = digest(self.copied)
        return seen

    def run(self, system):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="vlinder-nfs-"))
        image, mount = directory / "image", directory / "mount"
        mount.mkdir()
        try:
            system.make(image)
            system.mount(image, mount)
            assert os.path.ismount(mount)
            with Export(mount, directory) as export:
                seen = self.see(system, mount, export)
            system.unmount(mount)
            run("btrfs", "check", image)
        finally:
            if os.path.ismount(mount):
                subprocess.run(["umount", "-l", mount], check=False)
            shutil.rmtree(directory, ignore_errors=True)
        return seen

    def see(self, system, mount, export):
        inner, source = mount / "dir/inner", export.directory / "source"
        inner.mkdir(parents=True)
        for name, content in self.first.items():
            (inner / name).write_bytes(content)
        source.write_bytes(self.copied)
        seen = {"written": export.write(3, source, "dir/copied")}
        drop_caches()
        system.snapshot(mount, mount / "snapshot")
        (inner / "7").unlink()
        (inner / "8").write_bytes(self.later["8"])
        for step in self.expected():
            drop_caches()
            match step:
                case ("listed", version, path):
                    seen[step] = export.list(version, path)
                case ("read", version, path):
                    seen[step] = export.read(version, path)
        seen["as it is there"] = digest((mount / "dir/copied").read_bytes())
        return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vlinder", default="target/release/vlinder", help="the program to try")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tools = (arguments.vlinder, *NEEDED)
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing or os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print(f"run.py needs root, /dev/fuse and {', '.join(missing or tools)}", file=sys.stderr)
        sys.exit(2)
    if subprocess.run(["pgrep", "rpcbind"], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        run("rpcbind", "-w")
    script = Script(arguments.seed)
    expected, failed = script.expected(), 0
    for system in (Vlinder(arguments.vlinder), Linux()):
        seen = script.run(system)
        wrong = [step for step in expected if seen[step] != expected[step]]
        # Snapshots of the kernel's Btrfs have device numbers of their own, and ganesha does not follow there.
        excused = [step for step in wrong if isinstance(system, Linux) and "snapshot" in str(step)]
        for step in set(wrong) - set(excused):
            failed += 1
            print(f"{type(system).__name__}, {step}: {seen[step]} instead of {expected[step]}")
        print(f"{type(system).__name__}: {len(expected) - len(wrong)} of {len(expected)} steps as they must be")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
