//! `filesystem usage -T`: one row for each device, one column for each content and profile, as btrfs-progs lays it out.

use super::{Totals, by_content, content, profile};
use crate::failure::Failure;
use crate::object::Fullness;
use crate::session::Session;
use crate::units::Units;

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
    let Fullness { report, device, device_number, slack_bytes, .. } = fullness;
    let kinds = by_content(report);
    let size = |bytes: u64| Cell::Right(units.show(bytes));
    let size_or_none = |bytes: u64| if bytes == 0 { Cell::Right("-".to_owned()) } else { size(bytes) };
    let row = |head: [Cell; 2], middle: &dyn Fn(usize) -> Cell, tail: [Cell; 3]| -> Vec<Cell> {
        head.into_iter().chain((0..kinds.len()).map(middle)).chain(tail).collect()
    };
    let (none, rule) = (|| left(""), || Cell::Rule);
    let on_device = |column: usize| {
        kinds.get(column).map_or(0, |kind| kind.total_bytes.saturating_mul(kind.flags.copies()))
    };
    let of = |column: usize, of: &dyn Fn(&vlinder_transaction::KindReport) -> Cell| {
        kinds.get(column).map_or_else(none, |kind| of(kind))
    };
    let line = || row([rule(), rule()], &|_| rule(), [rule(), rule(), rule()]);
    let rows = [
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
        row(
            [Cell::Right(device_number.to_string()), left(device)],
            &|column| size_or_none(on_device(column)),
            [size(totals.unallocated), size(report.device_bytes), size_or_none(*slack_bytes)],
        ),
        line(),
        row(
            [none(), left("Total")],
            &|column| of(column, &|kind| size(kind.total_bytes)),
            [size(totals.unallocated), size(report.device_bytes), size(*slack_bytes)],
        ),
        row(
            [none(), left("Used")],
            &|column| of(column, &|kind| size(kind.occupied_bytes())),
            [none(), none(), none()],
        ),
    ];
    let widths: Vec<usize> = (0..kinds.len() + 5)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| cell.padded(*width)).collect();
        session.line(cells.join(" "))?;
    }
    Ok(())
}
