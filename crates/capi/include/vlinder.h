/* vlinder: Btrfs images without the kernel. The C interface.
 *
 * Calls return 0 or a number of bytes, or a negative errno; vlinder_last_error() then has a sentence for the thread that
 * made the call. Handles may be used by several threads at once, but for the calls that give them back.
 *
 * The library: cargo rustc --release -p vlinder-capi --crate-type cdylib (or staticlib) makes target/release/libvlinder_capi.so
 * (or .a).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef VLINDER_H
#define VLINDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vlinder_filesystem vlinder_filesystem;
typedef struct vlinder_file vlinder_file;

/* Bytes and where in the file they go. */
struct vlinder_part {
	uint64_t offset;
	const void *data;
	size_t length;
};

/* The sentence of the thread's last call that failed; empty if none did. Valid until the thread's next call. */
const char *vlinder_last_error(void);

/* Opens an image or block device; options as in "vlinder mount -o", or NULL. An image is open once: -EBUSY otherwise. */
int vlinder_open(const char *image, const char *options, vlinder_filesystem **out);
/* Makes everything durable and gives the handle back, whatever comes of that. While files of it are open: -EBUSY, and the
 * handle stays good. */
int vlinder_close(vlinder_filesystem *filesystem);
/* Makes durable what was done so far. */
int vlinder_sync(const vlinder_filesystem *filesystem);
/* What the file system counts, by the name in "vlinder stats"; of a histogram with ".count", ".mean", ".p50" or
 * ".p99" behind it. */
int64_t vlinder_statistic(const vlinder_filesystem *filesystem, const char *name);
/* The size in bytes of the file at a path. Paths are from the root of the file system. */
int64_t vlinder_file_size_by_path(const vlinder_filesystem *filesystem, const char *path);
/* Removes the file at a path. */
int vlinder_remove(const vlinder_filesystem *filesystem, const char *path);

/* flags as in open(2): O_RDONLY, O_WRONLY or O_RDWR; O_CREAT, O_EXCL, O_TRUNC, O_APPEND. Regular files, and directories with
 * O_RDONLY and without O_CREAT; -EOPNOTSUPP for pipes, sockets and devices. */
int vlinder_file_open(const vlinder_filesystem *filesystem, const char *path, int flags, uint32_t permissions,
		      vlinder_file **out);
void vlinder_file_close(vlinder_file *file);
int64_t vlinder_file_size(const vlinder_file *file);
/* Fewer bytes than asked for come only at the end of the file. */
int64_t vlinder_file_read(const vlinder_file *file, void *buffer, size_t length, uint64_t offset);
/* Into memory, with the space for it promised. */
int64_t vlinder_file_write(const vlinder_file *file, const void *data, size_t length, uint64_t offset);
/* The parts are on the device when this returns, as with O_DIRECT; durable only after vlinder_file_sync(). Parts of one
 * call share what is expensive, and so do calls of several threads for one file. */
int vlinder_file_write_direct(const vlinder_file *file, const struct vlinder_part *parts, size_t count);
/* As fsync(2). */
int vlinder_file_sync(const vlinder_file *file);
/* Cuts the file, or extends it by a hole. */
int vlinder_file_truncate(const vlinder_file *file, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
