//! A file of an image that is read.

use vlinder_base::sync::Arc;
use vlinder_fs::Inode;
use vlinder_fs::data::{self, OpenCache, Stretch};

use super::entered::EnteredDirectory;
use crate::failure::Failure;
use crate::place::content::{Content, Source, Take};

/// A file that is read.
pub(super) struct ImageSource {
    directory: EnteredDirectory,
    name: Vec<u8>,
    inode: Arc<Inode>,
    cache: OpenCache,
    /// What was read last, whose memory is used again.
    used: Option<Stretch>,
}

impl ImageSource {
    /// For a file that has a name in a directory.
    pub(super) fn new(directory: &EnteredDirectory, name: &[u8], inode: Arc<Inode>) -> Self {
        let (directory, name) = (directory.clone(), name.to_vec());
        Self { directory, name, inode, cache: OpenCache::new(), used: None }
    }
}

impl Source for ImageSource {
    fn content(&self) -> Content<'_> {
        Content::Image(Arc::as_ptr(&self.directory.image).addr(), &self.inode)
    }

    fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<usize, Failure> {
        let _operation = self.inode.operation.read();
        data::read(self.directory.filesystem(), &self.inode, &self.cache, offset, target)
            .map_err(self.directory.fail(&self.name))
    }

    fn read_data(
        &mut self,
        offset: u64,
        _scratch: &mut Vec<u8>,
        take: Take<'_>,
    ) -> Result<Option<u64>, Failure> {
        let found = {
            let _operation = self.inode.operation.read();
            data::read_data(self.directory.filesystem(), &self.inode, &self.cache, offset, self.used.take())
        };
        let Some(stretch) = found.map_err(self.directory.fail(&self.name))? else { return Ok(None) };
        take(&stretch.runs().collect::<Vec<_>>())?;
        let end = stretch.end();
        self.used = Some(stretch);
        Ok(Some(end))
    }
}
