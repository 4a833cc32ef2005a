//! The objects that the families of requests share.

use vlinder_base::sync::Arc;
use vlinder_fs::Filesystem;

use super::blocks::Blocks;
use super::change_times::ChangeTimes;
use super::durability::Durability;
use super::gate::Gate;
use super::kept_pages::KeptPages;
use super::kernel_names::KernelNames;
use super::mounted::Mounted;
use super::privileges::Privileges;
use super::shown::Shown;
use super::unplaced::UnplacedBytes;
use crate::transport::Settings;

/// What a mount's service is put together from. Each object of a family takes what it needs.
pub(super) struct Parts {
    pub(super) mounted: Arc<Mounted>,
    pub(super) unplaced: Arc<UnplacedBytes>,
    pub(super) gate: Arc<Gate>,
    pub(super) blocks: Arc<Blocks>,
    pub(super) shown: Arc<Shown>,
    pub(super) durability: Arc<Durability>,
    pub(super) kept_pages: Arc<KeptPages>,
    pub(super) change_times: Arc<ChangeTimes>,
    pub(super) kernel_names: KernelNames,
    pub(super) privileges: Privileges,
}

impl Parts {
    /// For a kernel that knows nothing yet.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn new(filesystem: Filesystem, settings: Settings) -> std::io::Result<Self> {
        let options = filesystem.options();
        let (registry, most_unplaced) = (Arc::clone(&options.registry), options.dirty_bytes);
        let unplaced = Arc::new(UnplacedBytes::new(filesystem.clone(), most_unplaced));
        let mounted = Arc::new(Mounted::new(filesystem, settings.writeback)?);
        let gate = Arc::new(Gate::new(mounted.clone(), &registry));
        let blocks = Arc::new(Blocks::new(mounted.clone()));
        let kernel_names = KernelNames::new(mounted.clone());
        Ok(Self {
            shown: Arc::new(Shown::new(mounted.clone(), gate.clone(), blocks.clone(), unplaced.clone())),
            durability: Arc::new(Durability::new(mounted.clone(), blocks.clone(), unplaced.clone())),
            kept_pages: Arc::new(KeptPages::default()),
            change_times: Arc::new(ChangeTimes::new(mounted.clone(), kernel_names.clone())),
            privileges: Privileges::new(settings.kernel_kills_privileges),
            mounted,
            unplaced,
            gate,
            blocks,
            kernel_names,
        })
    }
}
