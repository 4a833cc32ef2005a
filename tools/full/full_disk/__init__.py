"""Filling a file system and emptying it again, strictly: what the workloads of tools/full/run.py share.

`systems` mounts an image (vlinder through FUSE, or Linux); `workloads`, `one_process` and `stress` fill it;
`manifest` holds what they were told, with a record for each file (`records`, `scattered`); `listings` reads
all that one system shows; `emptying` empties a mount, `ending` judges a full state on both systems, `figures`
reads the space of an unmounted image.
"""
