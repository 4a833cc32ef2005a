//! `-o`: the mount's options, by the same names for every verb that opens an image.

use std::path::PathBuf;

use clap::Args;
use vlinder_fs::{OpenOptions, OptionError};
use vlinder_fuse::MountOptions;

use crate::failure::Failure;

/// `-o` of verbs that read what lies on disk: an option that picks what is shown, or how a mount behaves,
/// means nothing to them.
#[derive(Args, Debug)]
pub struct OptionArguments {
    /// Mount options, as in vlinder mount; taken for the sake of scripts.
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
}

impl OptionArguments {
    /// Makes sure that there are such options.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn check(&self) -> Result<(), Failure> {
        self.read().map(drop)
    }

    /// The names of images, of which the first says which bytes of it are meant where the options do.
    ///
    /// # Errors
    /// As [`parse`]; where that name says so already.
    pub fn name(&self, images: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
        Ok(self.read()?.device_names(images)?)
    }

    /// The options.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn read(&self) -> Result<OpenOptions, Failure> {
        parse(&self.options)
    }
}

/// The options of several `-o`, each a list joined by commas. Those that only a mount knows, and mount(8)'s
/// and FUSE's general ones, are taken too, so that the options of an fstab line can be given to every verb;
/// they mean nothing to one that opens an image by itself.
///
/// # Errors
/// An unknown name, or a bad value.
pub fn parse(lists: &[String]) -> Result<OpenOptions, Failure> {
    let lists: Vec<&str> = lists.iter().map(String::as_str).filter(|list| !list.is_empty()).collect();
    if lists.is_empty() {
        return Ok(OpenOptions::default());
    }
    let parsed = MountOptions::parse(&lists.join(",")).map_err(|error| match error {
        OptionError::Unknown { name } => Failure::usage(format!("unknown option {name:?}"))
            .hint("the manual of vlinder mount lists all options"),
        other => Failure::usage(other.to_string()),
    });
    Ok(parsed?.filesystem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn unknown_options_are_errors_and_those_of_mounts_are_not() {
        assert!(parse(&["ro,subvolid=5".into(), "nofail,x-systemd.automount".into()]).unwrap().read_only);
        assert_eq!(parse(&["ro,frob".into()]).err().map(|failure| failure.kind), Some(Kind::Usage));
        for bad in ["transport=nope", "writeback=perhaps", "threads=x", "commit=x", "user_id=0"] {
            assert_eq!(parse(&[bad.into()]).err().map(|failure| failure.kind), Some(Kind::Usage), "{bad}");
        }
        let general = "rw,noatime,relatime,norelatime,strictatime,nosuid,nodev,noexec,user,nofail,loop,_netdev,x-a,allow_other,\
                       default_permissions,fsname=a,subtype=b,auto_unmount,transport=fuse,threads=2,writeback=off";
        assert!(!parse(&[general.into()]).unwrap().read_only);
        assert_eq!(parse(&["subvolid=x".into()]).err().map(|failure| failure.kind), Some(Kind::Usage));
    }
}
