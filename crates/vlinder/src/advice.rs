//! What to do about a refusal, where its sentence does not say it.

use vlinder_fs::Refusal;

/// What to do, for the end of a sentence.
pub(crate) fn advice(refusal: Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::NotFound => "look at the path, which begins at the root of the file system",
        Refusal::Exists => "take another name, or remove what has it",
        Refusal::NotADirectory => "give the path of a directory",
        Refusal::IsADirectory => "give the path of a file, or read it as a directory",
        Refusal::NotEmpty => "remove what is in it first, or all of it with remove_dir_all",
        Refusal::NotPermitted => "look at the flags of the file, as chattr(1) sets them",
        Refusal::QuotaExceeded => "delete something, or raise the limit with btrfs qgroup",
        Refusal::TooManyLinks => "make a copy instead of a further name",
        Refusal::NameTooLong => "take a shorter one",
        Refusal::SymbolicLinkLoop => "give the path of the file itself",
        Refusal::CrossesSubvolumes => "copy it instead",
        Refusal::NoAttribute => "list the attributes that there are with Xattrs::list",
        Refusal::FileTooLarge => "read or write it part by part, with a File",
        Refusal::Busy => "stop what uses it first",
        Refusal::BadHandle => "open it with FileOptions::read or FileOptions::write",
        _ => return None,
    })
}
