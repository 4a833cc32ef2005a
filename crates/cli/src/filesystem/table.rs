//! `filesystem usage -T`: one row for each device, one column for each content and profile, as btrfs-progs
//! lays it out.

use vlinder_places::failure::Failure;
use vlinder_places::fullness::{Fullness, ShownDevice};
use vlinder_places::session::Session;
use vlinder_places::units::Units;

use super::kinds::{by_content, content, profile};
use super::totals::Totals;

/// What stands in a cell.
#[derive(Clone, Debug)]
enum Cell {
    Left(String),
    Right(String),
    /// A line as wide as the column.
    Rule,
}

impl Cell {
    fn width(&self) -> usize {
        match self {
            Self::Left(text) | Self::Right(text) => text.chars().count(),
            Self::Rule => 0,
        }
    }

    fn padded(&self, width: usize) -> String {
        match self {
            Self::Left(text) => format!("{text:<width$}"),
            Self::Right(text) => format!("{text:>width$}"),
            Self::Rule => "-".repeat(width),
        }
    }
}

fn left(text: impl Into<String>) -> Cell {
    Cell::Left(text.into())
}

/// Prints the table.
pub(super) fn print(
    fullness: &Fullness,
    totals: &Totals,
    units: Units,
    session: &Session,
) -> Result<(), Failure> {
    let kinds = by_content(&fullness.report);
    let size = |bytes: u64| Cell::Right(units.show(bytes));
    let size_or_none = |bytes: u64| if bytes == 0 { Cell::Right("-".to_owned()) } else { size(bytes) };
    let row = |head: [Cell; 2], middle: &dyn Fn(usize) -> Cell, tail: [Cell; 3]| -> Vec<Cell> {
        head.into_iter().chain((0..kinds.len()).map(middle)).chain(tail).collect()
    };
    let (none, rule) = (|| left(""), || Cell::Rule);
    let device_row = |device: &ShownDevice| {
        let of_kind = |column: usize| {
            let kind = kinds.get(column);
            size_or_none(kind.map_or(0, |kind| fullness.allocated_on(device, |flags| flags == kind.flags)))
        };
        let total = device.report.total_bytes;
        let unallocated = total.saturating_sub(fullness.allocated_on(device, |_| true));
        let head = [Cell::Right(device.report.number.to_string()), left(&device.name)];
        row(head, &of_kind, [size(unallocated), size(total), size_or_none(device.slack_bytes)])
    };
    let of = |column: usize, of: &dyn Fn(&vlinder_transaction::KindReport) -> Cell| {
        kinds.get(column).map_or_else(none, |kind| of(kind))
    };
    let line = || row([rule(), rule()], &|_| rule(), [rule(), rule(), rule()]);
    let mut rows = vec![
        row(
            [none(), none()],
            &|column| of(column, &|kind| left(content(kind.flags))),
            [none(), none(), none()],
        ),
        row(
            [left("Id"), left("Path")],
            &|column| of(column, &|kind| left(profile(kind.flags))),
            [left("Unallocated"), left("Total"), left("Slack")],
        ),
        line(),
    ];
    rows.extend(fullness.devices.iter().map(device_row));
    rows.extend([
        line(),
        row(
            [none(), left("Total")],
            &|column| of(column, &|kind| size(kind.total_bytes)),
            [size(totals.unallocated), size(totals.device_bytes), size(totals.slack)],
        ),
        row(
            [none(), left("Used")],
            &|column| of(column, &|kind| size(kind.occupied_bytes())),
            [none(), none(), none()],
        ),
    ]);
    let widths: Vec<usize> = (0..kinds.len() + 5)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| cell.padded(*width)).collect();
        session.line(cells.join(" "))?;
    }
    Ok(())
}
