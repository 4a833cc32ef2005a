//! The rows.

mod check;
mod fio;
mod fsync;
mod growth;
mod images;
mod mounts;
mod opening;
mod seeds;
mod state_map;

use crate::row::Row;

/// Every row.
pub fn all() -> Vec<Row> {
    let mut rows = mounts::rows();
    rows.extend(images::rows());
    rows.extend(opening::rows());
    rows.extend(fsync::rows());
    rows.extend(growth::rows());
    rows.extend(check::rows());
    rows.extend(fio::rows());
    rows.extend(seeds::rows());
    rows.extend(state_map::rows());
    rows
}
