//! The control socket: conversations and rights.

mod conversation;
mod rights;
mod rights_table;
