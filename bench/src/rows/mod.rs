//! The rows.

mod check;
pub mod fio;
mod fsync;
mod group_watch;
mod growth;
mod images;
mod mechanisms;
mod mounts;
mod opening;
mod scaling;
mod state_map;
mod streams;

use crate::row::Row;

/// Every row.
pub fn all() -> Vec<Row> {
    let mut rows = mounts::rows();
    rows.extend(images::rows());
    rows.extend(opening::rows());
    rows.extend(scaling::rows());
    rows.extend(fsync::rows());
    rows.extend(growth::rows());
    rows.extend(check::rows());
    rows.extend(fio::rows());
    rows.extend(mechanisms::rows());
    rows.extend(state_map::rows());
    rows.extend(streams::rows());
    rows
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_row_is_found_by_its_name_or_the_name_of_its_group() {
        let rows = super::all();
        let named =
            |name: &str| rows.iter().filter(|row| row.is_named(name)).map(|row| row.id).collect::<Vec<_>>();
        for row in &rows {
            assert!(named(row.id).contains(&row.id), "{}", row.id);
            assert_eq!(named(&row.id.to_lowercase()), named(row.id));
        }
        assert_eq!((named("G3"), named("G3L")), (vec!["G3", "G3L", "G3S"], vec!["G3L"]));
        assert_eq!(named("s5"), ["S5a"]);
        assert_eq!(named("S5b"), ["S5B-1", "S5B-12", "S5B-FLUSH-1", "S5B-FLUSH-12"]);
        assert_eq!(named("S2").len(), 2);
        assert!(named("S").is_empty() && named("S9").is_empty());
    }
}
