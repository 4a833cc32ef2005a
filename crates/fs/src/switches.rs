//! The mechanisms that can be switched off, to be measured.

use vlinder_transaction::Disabled;

macro_rules! switches {
    ($($name:ident: $help:literal,)*) => {
        /// The mechanisms that `disable=` switches off, each with what it is.
        pub const SWITCHES: &[(&str, &str)] = &[$((stringify!($name), $help),)*];
        /// What belongs behind `disable=`.
        pub(crate) const SWITCH_LIST: &str = concat!("list of ", $(stringify!($name), ", ",)* "joined by colons");

        /// The switch of a name.
        pub(crate) fn switch<'a>(disabled: &'a mut Disabled, name: &str) -> Option<&'a mut bool> {
            match name {
                $(stringify!($name) => Some(&mut disabled.$name),)*
                _ => None,
            }
        }
    };
}

switches! {
    seek_cache: "the cached position of SEEK_DATA and SEEK_HOLE",
    delayed_batch: "batches of pending items across gaps of keys",
    block_group_skip: "not writing the items of block groups whose `used` ends a transaction where it began",
    send_readahead: "reading tree blocks ahead of a send",
    state_trim: "trimming state records in place",
}
