#!/usr/bin/env python3
"""Random changes of one file, each compared with a model in memory: random_changes.py SEED STEPS (in the mount).

Descriptors, maps, O_DIRECT, fallocate, copy_file_range, truncation and SEEK_DATA/SEEK_HOLE take turns on the same file, so
that the kernel's cache and the server never agree by accident. Ends with 1 at the first difference."""
import ctypes
import mmap
import os
import random
import sys

SEED, STEPS = int(sys.argv[1]), int(sys.argv[2])
LARGEST = 400_000
NAME = f"random{SEED}"
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16

choose = random.Random(SEED)
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
model = bytearray()
files = [os.open(NAME, os.O_RDWR | os.O_CREAT, 0o600)]


def fail(*what):
    print("seed", SEED, "step", step, *what)
    sys.exit(1)


def put(offset, data):
    if offset + len(data) > len(model):
        model.extend(bytes(offset + len(data) - len(model)))
    model[offset:offset + len(data)] = data


def fallocate(file, mode, offset, length):
    if libc.fallocate(file, mode, offset, length):
        fail("fallocate", mode, os.strerror(ctypes.get_errno()))


def compare(file, offset, length, what):
    found, expected = os.pread(file, length, offset), bytes(model[offset:offset + length])
    if found != expected:
        at = next((i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), "length")
        fail(what, "at", offset, "+", at, "lengths", len(found), len(expected))


def write(file, offset, length):
    data = bytes([choose.randrange(256)]) * length
    os.pwrite(file, data, offset)
    put(offset, data)


def read(file, offset, length):
    compare(file, offset, length, "read")


def truncate(file, offset, _length):
    os.ftruncate(file, offset)
    del model[offset:]
    put(offset, b"")


def map_write(file, offset, length):
    with mmap.mmap(file, len(model)) as view:
        offset %= len(model)
        data = bytes([choose.randrange(256)]) * min(length, len(model) - offset)
        view[offset:offset + len(data)] = data
        model[offset:offset + len(data)] = data


def map_read(file, offset, length):
    with mmap.mmap(file, len(model)) as view:
        offset %= len(model)
        if view[offset:offset + length] != bytes(model[offset:offset + length]):
            fail("map")


def punch(file, offset, length):
    fallocate(file, PUNCH_HOLE | KEEP_SIZE, offset, length)
    end = min(offset + length, len(model))
    if offset < end:
        model[offset:end] = bytes(end - offset)


def zero(file, offset, length):
    fallocate(file, ZERO_RANGE, offset, length)
    put(offset, bytes(length))


def reserve(file, offset, length):
    fallocate(file, 0, offset, length)
    put(max(offset + length, len(model)), b"")


def copy(file, offset, length):
    source = choose.randrange(len(model))
    if choose.random() < 0.6:
        source, offset, length = source & ~4095, offset & ~4095, (length + 4095) & ~4095
    length = min(length, len(model) - source)
    if source < offset + length and offset < source + length:
        return
    data = bytes(model[source:source + length])
    if os.copy_file_range(file, choose.choice(files), length, source, offset) != length:
        fail("short copy")
    put(offset, data)


def direct(_file, offset, _length):
    file = os.open(NAME, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 8192)
    page.write(bytes([choose.randrange(256)]) * 8192)
    os.pwritev(file, [page], offset & ~4095)
    put(offset & ~4095, page[:])
    os.close(file)


def seek(file, _offset, _length):
    """Every byte that is not zero lies in data."""
    at, covered = 0, bytearray(len(model))
    while True:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(file, start, os.SEEK_HOLE)
        covered[start:at] = b"\1" * (at - start)
    for position in range(0, len(model), 97):
        if model[position] and not covered[position]:
            fail("data at", position, "is said to be a hole")


def reopen(_file, _offset, _length):
    if len(files) > 2:
        os.close(files.pop(choose.randrange(len(files))))
    else:
        files.append(os.open(NAME, os.O_RDWR))


def sync(file, _offset, _length):
    os.fsync(file)


needs_bytes = {map_write, map_read, copy}
operations = [write] * 6 + [read] * 4 + [truncate, map_write, map_read, punch, zero, reserve, copy, direct, seek, reopen, sync]
for step in range(STEPS):
    operation = choose.choice(operations)
    arguments = choose.choice(files), choose.randrange(LARGEST), choose.randrange(1, choose.choice([100, 5000, 60000]))
    if operation in needs_bytes and not model:
        continue
    operation(*arguments)
    size = os.fstat(files[0]).st_size
    if size != len(model):
        fail(operation.__name__, "size", size, "expected", len(model))
compare(files[0], 0, len(model) + 1, "end")
