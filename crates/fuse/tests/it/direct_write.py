"""One process reads a file through the page cache, this one overwrites it with O_DIRECT, asynchronously (io_submit(2)): how many
buffered reads after a finished write gave old bytes."""

import ctypes
import mmap
import os
import platform
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
SETUP, GET, SUBMIT = (0, 4, 2) if platform.machine() == "aarch64" else (206, 208, 209)
SIZE, ROUNDS = 160 * 4096, 200


class Request(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
                ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16), ("file", ctypes.c_uint32),
                ("buffer", ctypes.c_uint64), ("length", ctypes.c_uint64), ("offset", ctypes.c_int64),
                ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("event_file", ctypes.c_uint32)]


class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("request", ctypes.c_uint64),
                ("result", ctypes.c_int64), ("result2", ctypes.c_int64)]


def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def write(context, file, buffer):
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    request, event = Request(opcode=1, file=file, buffer=address, length=SIZE), Event()
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(request))
    assert call(SUBMIT, context, ctypes.c_long(1), pointers) == 1
    assert call(GET, context, ctypes.c_long(1), ctypes.c_long(1), ctypes.byref(event), None) == 1
    assert event.result == SIZE, event.result


path = sys.argv[1]
buffer = mmap.mmap(-1, SIZE)
file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
os.pwrite(file, buffer, 0)
reader = os.fork()
if reader == 0:
    kept = os.open(path, os.O_RDONLY)
    while True:
        os.pread(kept, SIZE, 0)
try:
    kept = os.open(path, os.O_RDONLY)
    context = ctypes.c_ulong()
    call(SETUP, 4, ctypes.byref(context))
    stale = 0
    for round in range(1, ROUNDS + 1):
        content = bytes([round]) * SIZE
        buffer[:] = content
        write(context, file, buffer)
        stale += os.pread(kept, SIZE, 0) != content
    # The same through a mapping.
    mapped = mmap.mmap(kept, SIZE, prot=mmap.PROT_READ)
    for round in range(1, ROUNDS + 1):
        assert mapped[0] in range(256)
        buffer[:] = bytes([round]) * SIZE
        write(context, file, buffer)
        stale += mapped[SIZE - 1] != round or mapped[0] != round
finally:
    os.kill(reader, signal.SIGKILL)
    os.waitpid(reader, 0)
print(stale, "stale")
