"""Filling a file system and emptying it again, strictly: what the workloads of tools/full/run.py share.

`systems` mounts an image (vlinder through FUSE, or Linux), `workloads` and `stress` fill it, `ending`
empties it on both systems and judges, `figures` reads the space of an unmounted image.
"""
