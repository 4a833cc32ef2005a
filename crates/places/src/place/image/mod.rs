//! Directories of an image.

mod attributes;
mod directory;
mod entered;
mod failure;
mod open;
mod sink;
mod source;

pub use directory::ImageDirectory;
pub use failure::from_fs;
pub use open::{OpenImage, status_of};
