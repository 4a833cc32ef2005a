"""File handles: `take PATH` prints type and bytes; `open MOUNT TYPE BYTES` what they lead to, or the error's name."""

import ctypes
import errno
import os
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def take(path):
    handle, mount = Handle(length=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), path)
    print(handle.type, bytes(handle.bytes[: handle.length]).hex())


def opened(mount, kind, text):
    data = bytes.fromhex(text)
    handle = Handle(length=len(data), type=int(kind))
    ctypes.memmove(handle.bytes, data, len(data))
    root = os.open(mount, os.O_RDONLY)
    file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    if file < 0:
        return errno.errorcode[ctypes.get_errno()]
    if stat.S_ISDIR(os.fstat(file).st_mode):
        place = os.path.relpath(os.readlink(f"/proc/self/fd/{file}"), os.path.realpath(mount))
        return f"{place}: {' '.join(sorted(os.listdir(file)))}"
    return os.read(file, 100).decode().strip()


if sys.argv[1] == "take":
    take(sys.argv[2])
else:
    print(opened(*sys.argv[2:]))
