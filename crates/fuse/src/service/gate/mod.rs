//! The gate before write(2) under the writeback cache: a full file system says so before the kernel takes
//! bytes.
//!
//! With its writeback cache the kernel takes bytes without asking the server, and a page that the server then
//! refuses is lost. But before it takes any byte of a write(2), the kernel makes sure that it knows the
//! file's mode (`fuse_cache_write_iter` in Linux's fs/fuse/file.c): where its attributes are marked invalid
//! it sends a GETATTR with the file's handle, and an error of that GETATTR is the error of write(2). So the
//! server shuts the *gate* of a file by marking its attributes invalid, and each write(2) asks. No other call
//! asks with a handle while the attributes' time runs.
//!
//! While there is room the gate is open, and costs one atomic load for each request. It is shut for all files
//! that are open for writing *before* the kernel could hold more than there is room for.
//!
//! Invariants, and the function that keeps each:
//! 1. While the gate is open, the room is at least `dirty=` and what the kernel may hold, as of the last
//!    look. A look is due (a) after half of the surplus was taken
//!    ([`GateState::note_taken`](state::GateState::note_taken)), (b) four times a second while files are open
//!    for writing ([`keeper`]), (c) at an open when the last look is some time ago ([`Gate::note_opened`]). A
//!    caller that asks for a look gets one that began afterwards ([`looks`]).
//! 2. While the gate is shut, it is shut for every file that is open for writing: those that were open when
//!    it was shut ([`Gate::look`]), and those opened since ([`Gate::note_opened`]).
//! 3. No reply opens it again. A reply that the kernel compares with the attributes' version is sent after a
//!    notification that raised the version, and so is dropped ([`Gate::keep_shut`]). A reply that the
//!    kernel takes without comparing (SETATTR, CREATE, LINK) is followed by notifications
//!    ([`Gate::shut_after_reply`]).
//! 4. A write that asked is let in only if what the kernel holds has room beside it, or after the pages of
//!    its file were pushed out and there is room, or space of the file's own ([`Admission::admit`]).
//! 5. Nothing that can wait for the kernel is done by a thread that answers requests, nor with a lock held:
//!    pages are pushed by threads of their own ([`KernelLink::run`](super::kernel_link::KernelLink::run)).
//! 6. Each open file's writer is told when it asks next of bytes that found no room and are not stored since
//!    ([`refusals`]).
//! 7. All this holds for kernels from 5.16 on (6.16 was read, 6.18 tried). A kernel that does not ask is
//!    noticed by what it hands over ([`GateState::note_unasked`](state::GateState::note_unasked)). Where room
//!    is short, files are opened past such a kernel's cache, so that write(2) itself comes here
//!    ([`Gate::goes_past_the_cache`]).
//!
//! [`state`] is what is known, [`shutting`] decides when the gate is shut, [`admission`] what a write that
//! asks is told, [`keeper`] does what is due at intervals.

mod admission;
mod keeper;
mod looks;
mod page_cache;
mod refusals;
mod schedule;
mod shutting;
mod state;

pub(super) use self::admission::Admission;
pub(super) use self::keeper::Keeper;
pub(super) use self::refusals::Told;
pub(super) use self::shutting::Gate;
