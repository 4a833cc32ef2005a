"""Filling a file system and emptying it again, strictly: what the workloads of tools/full/run.py share.

`systems` mounts an image (vlinder through FUSE, or Linux), `workloads` and `stress` fill it, `contents`
knows what the files must hold, `emptying` empties a mount, `ending` judges a full state on both systems,
`figures` reads the space of an unmounted image.
"""
