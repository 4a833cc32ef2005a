// SPDX-License-Identifier: GPL-2.0-only
/*
 * An external engine of fio that reads and writes the files of a Btrfs image through the C interface of vlinder, without a
 * mount. It includes fio's headers, so it is licensed as they are (COPYING beside this file), apart from the rest of vlinder.
 *
 *	fio --ioengine=external:target/fio-engine/vlinder.so --thread --image=disk.img --filename=/file ...
 *
 * Jobs have to be threads: all jobs with the same image share one open file system, which is closed with the last of them.
 *
 * What a job queues is done when it asks for what is complete: until then it lies here as it would lie in a device's queue.
 * Writes that follow one another go to the library in one call. With direct=1 they are on the device when they complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include "vlinder.h"

/* An image, shared by the jobs that use it. Guarded by images_lock. */
struct image {
	struct image *next;
	char *path;
	char *statistics;
	unsigned int users;
	vlinder_filesystem *filesystem;
};

static struct image *images;
static pthread_mutex_t images_lock = PTHREAD_MUTEX_INITIALIZER;

struct options {
	void *unused; /* fio takes offset 0 for "no option" */
	char *image;
	char *mount_options;
	char *statistics;
};

/* What a job has. */
struct job {
	struct image *image;
	/* Queued, not done yet; then done, not reaped yet. Each has room for iodepth requests. */
	struct io_u **queued;
	unsigned int queued_count;
	struct io_u **done;
	unsigned int done_count;
	/* Writes that go to the library together. */
	struct vlinder_part *parts;
};

static int complain(struct thread_data *td, const char *what, const char *where, int64_t status)
{
	log_err("vlinder: %s %s: %s\n", what, where, vlinder_last_error());
	td_verror(td, (int)-status, what);
	return 1;
}

static struct image *image_get(struct thread_data *td, const struct options *options)
{
	struct image *image;
	int status;

	pthread_mutex_lock(&images_lock);
	for (image = images; image; image = image->next)
		if (!strcmp(image->path, options->image))
			break;
	if (image) {
		image->users++;
		goto out;
	}
	image = calloc(1, sizeof(*image));
	if (!image || !(image->path = strdup(options->image)) ||
	    !(image->statistics = strdup(options->statistics ? options->statistics : ""))) {
		td_verror(td, ENOMEM, "image");
		goto fail;
	}
	status = vlinder_open(options->image, options->mount_options, &image->filesystem);
	if (status) {
		complain(td, "opening", options->image, status);
		goto fail;
	}
	image->users = 1;
	image->next = images;
	images = image;
	goto out;
fail:
	if (image) {
		free(image->path);
		free(image->statistics);
	}
	free(image);
	image = NULL;
out:
	pthread_mutex_unlock(&images_lock);
	return image;
}

/* Prints what the image's jobs wanted to know: after a commit, so that all of the work is counted. */
static void print_statistics(struct thread_data *td, const struct image *image)
{
	char *name, *rest = NULL;
	int64_t value;

	if (!*image->statistics)
		return;
	if (vlinder_sync(image->filesystem))
		return; /* closing says why */
	for (name = strtok_r(image->statistics, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
		value = vlinder_statistic(image->filesystem, name);
		if (value < 0)
			complain(td, "counting", name, value);
		else
			log_info("vlinder: %s %lld\n", name, (long long)value);
	}
}

static void image_put(struct thread_data *td, struct image *image)
{
	struct image **place;
	int status;

	pthread_mutex_lock(&images_lock);
	if (!--image->users) {
		for (place = &images; *place != image; place = &(*place)->next)
			;
		*place = image->next;
		print_statistics(td, image);
		status = vlinder_close(image->filesystem);
		if (status)
			complain(td, "closing", image->path, status);
		free(image->path);
		free(image->statistics);
		free(image);
	}
	pthread_mutex_unlock(&images_lock);
}

static void engine_cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (!job)
		return;
	td->io_ops_data = NULL;
	if (job->image)
		image_put(td, job->image);
	free(job->queued);
	free(job->done);
	free(job->parts);
	free(job);
}

/* Before the jobs run: opens the image, and says how large the files are. */
static int engine_setup(struct thread_data *td)
{
	const struct options *options = td->eo;
	struct fio_file *file;
	unsigned int number;
	struct job *job;

	if (!td->o.use_thread) {
		log_err("vlinder: jobs share an open image, so they have to be threads; add --thread\n");
		return 1;
	}
	if (!options->image) {
		log_err("vlinder: which image? Add --image=PATH\n");
		return 1;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return 1;
	td->io_ops_data = job;
	job->queued = calloc(td->o.iodepth, sizeof(*job->queued));
	job->done = calloc(td->o.iodepth, sizeof(*job->done));
	job->parts = calloc(td->o.iodepth, sizeof(*job->parts));
	if (!job->queued || !job->done || !job->parts)
		goto fail;
	job->image = image_get(td, options);
	if (!job->image)
		goto fail;
	for_each_file(td, file, number) {
		int64_t size = vlinder_file_size_by_path(job->image->filesystem, file->file_name);

		if (size < 0 && size != -ENOENT) {
			complain(td, "looking for", file->file_name, size);
			goto fail;
		}
		file->filetype = FIO_TYPE_FILE;
		file->real_file_size = size < 0 ? 0 : (uint64_t)size;
		fio_file_set_size_known(file);
	}
	return 0;
fail:
	engine_cleanup(td);
	return 1;
}

/* Fills a file from its end up to a size. */
static int fill(struct thread_data *td, vlinder_file *target, const char *name, uint64_t from, uint64_t size)
{
	const uint64_t most = 1 << 20;
	void *buffer = malloc(most);
	int failed = 0;

	if (!buffer)
		return 1;
	while (from < size && !failed) {
		uint64_t length = size - from < most ? size - from : most;
		int64_t status;

		fill_io_buffer(td, buffer, length, length);
		status = vlinder_file_write(target, buffer, length, from);
		if (status < 0)
			failed = complain(td, "filling", name, status);
		from += length;
	}
	free(buffer);
	return failed;
}

/* Who reads has to find data; who writes alone finds a hole, as on a mount with fallocate=none. */
static int engine_prepopulate_file(struct thread_data *td, struct fio_file *file)
{
	const struct job *job = td->io_ops_data;
	uint64_t size = file->file_offset + file->io_size;
	vlinder_file *target;
	int status, failed = 0;
	int64_t present;

	if (read_only)
		return 0;
	status = vlinder_file_open(job->image->filesystem, file->file_name, O_RDWR | O_CREAT, 0644, &target);
	if (status)
		return complain(td, "making", file->file_name, status);
	present = vlinder_file_size(target);
	if (present >= 0 && (uint64_t)present < size) {
		if (td_read(td) || td->o.overwrite) {
			failed = fill(td, target, file->file_name, (uint64_t)present, size);
		} else {
			status = vlinder_file_truncate(target, size);
			if (status)
				failed = complain(td, "extending", file->file_name, status);
		}
		if (!failed)
			file->real_file_size = size;
	}
	vlinder_file_close(target);
	return failed;
}

static int engine_open_file(struct thread_data *td, struct fio_file *file)
{
	const struct job *job = td->io_ops_data;
	int flags = td_write(td) && !read_only ? O_RDWR | O_CREAT : O_RDONLY;
	vlinder_file *target;
	int status = vlinder_file_open(job->image->filesystem, file->file_name, flags, 0644, &target);

	if (status)
		return complain(td, "opening", file->file_name, status);
	FILE_SET_ENG_DATA(file, target);
	return 0;
}

static int engine_close_file(struct thread_data *td, struct fio_file *file)
{
	vlinder_file_close(FILE_ENG_DATA(file));
	FILE_SET_ENG_DATA(file, NULL);
	return 0;
}

static int engine_unlink_file(struct thread_data *td, struct fio_file *file)
{
	const struct job *job = td->io_ops_data;
	int status = vlinder_remove(job->image->filesystem, file->file_name);

	return status ? complain(td, "removing", file->file_name, status) : 0;
}

static void finish(struct job *job, struct io_u *request, int64_t status)
{
	if (status < 0)
		request->error = (unsigned int)-status;
	else
		request->resid = request->xfer_buflen - (uint64_t)status;
	job->done[job->done_count++] = request;
}

/* Writes requests of one file. */
static void write_out(struct thread_data *td, struct job *job, struct io_u **requests, unsigned int count)
{
	vlinder_file *target;
	unsigned int number;
	int64_t status = 0;

	if (!count)
		return;
	target = FILE_ENG_DATA(requests[0]->file);
	if (td->o.odirect) {
		for (number = 0; number < count; number++)
			job->parts[number] = (struct vlinder_part){
				.offset = requests[number]->offset,
				.data = requests[number]->xfer_buf,
				.length = requests[number]->xfer_buflen,
			};
		status = vlinder_file_write_direct(target, job->parts, count);
	} else {
		for (number = 0; number < count && status >= 0; number++)
			status = vlinder_file_write(target, requests[number]->xfer_buf, requests[number]->xfer_buflen,
						    requests[number]->offset);
	}
	if (status >= 0 && td->o.sync_io)
		status = vlinder_file_sync(target);
	for (number = 0; number < count; number++)
		finish(job, requests[number], status < 0 ? status : (int64_t)requests[number]->xfer_buflen);
}

/* Does what is queued, in its order. */
static void work(struct thread_data *td, struct job *job)
{
	unsigned int first = 0, number;

	for (number = 0; number < job->queued_count; number++) {
		struct io_u *request = job->queued[number];

		if (request->ddir == DDIR_WRITE && (number == first || request->file == job->queued[first]->file))
			continue;
		write_out(td, job, job->queued + first, number - first);
		first = number;
		if (request->ddir == DDIR_WRITE)
			continue;
		finish(job, request,
		       vlinder_file_read(FILE_ENG_DATA(request->file), request->xfer_buf, request->xfer_buflen,
					 request->offset));
		first = number + 1;
	}
	write_out(td, job, job->queued + first, number - first);
	job->queued_count = 0;
}

static enum fio_q_status engine_queue(struct thread_data *td, struct io_u *request)
{
	struct job *job = td->io_ops_data;
	int status;

	fio_ro_check(td, request);
	if (request->ddir == DDIR_READ || request->ddir == DDIR_WRITE) {
		if (job->queued_count + job->done_count == td->o.iodepth)
			return FIO_Q_BUSY;
		job->queued[job->queued_count++] = request;
		return FIO_Q_QUEUED;
	}
	if (!ddir_sync(request->ddir)) {
		request->error = EOPNOTSUPP;
		return FIO_Q_COMPLETED;
	}
	work(td, job);
	status = vlinder_file_sync(FILE_ENG_DATA(request->file));
	if (status)
		request->error = (unsigned int)-status;
	return FIO_Q_COMPLETED;
}

static int engine_getevents(struct thread_data *td, unsigned int least, unsigned int most, const struct timespec *patience)
{
	struct job *job = td->io_ops_data;

	if (job->done_count < most)
		work(td, job);
	return (int)(job->done_count < most ? job->done_count : most);
}

/* fio asks for each of the events that it was told of, in their order; what is left moves up after the last of them. */
static struct io_u *engine_event(struct thread_data *td, int event)
{
	struct job *job = td->io_ops_data;

	(void)event;
	struct io_u *request = job->done[0];

	job->done_count--;
	memmove(job->done, job->done + 1, job->done_count * sizeof(*job->done));
	return request;
}

static struct fio_option engine_options[] = {
	{
		.name = "image",
		.lname = "Image",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, image),
		.help = "The image or block device",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "mount_options",
		.lname = "Mount options",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, mount_options),
		.help = "As vlinder mount -o; a comma is written as \\,",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "statistics",
		.lname = "Statistics",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, statistics),
		.help = "What the file system counted, printed at the end: names as vlinder_statistic() has them, with blanks between",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

/* fio finds the engine by this name. */
struct ioengine_ops ioengine = {
	.name = "vlinder",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
	.setup = engine_setup,
	.queue = engine_queue,
	.getevents = engine_getevents,
	.event = engine_event,
	.cleanup = engine_cleanup,
	.open_file = engine_open_file,
	.close_file = engine_close_file,
	.unlink_file = engine_unlink_file,
	.prepopulate_file = engine_prepopulate_file,
	.option_struct_size = sizeof(struct options),
	.options = engine_options,
};
