//! The list of mount options, for the help and the manual, made of the tables that the options are read by.

use vlinder_fs::mount_option::{MountOption, Origin};
use vlinder_fs::{OPEN_OPTIONS, RESCUE_PARTS, SWITCHES};
use vlinder_fuse::MOUNT_OPTIONS;

/// Where what an option does begins.
const COLUMN: usize = 20;
/// Columns of a line.
const COLUMNS: usize = 60;

/// All mount options, by whose they are.
pub fn text() -> String {
    let mut text =
        "Mount options, joined by commas.\n\nOf the file system, as Linux's btrfs has them (every verb \
                    that opens an image takes these):\n"
            .to_owned();
    add(&mut text, OPEN_OPTIONS, Origin::Linux);
    text += "\nOf vlinder:\n";
    add(&mut text, OPEN_OPTIONS, Origin::Vlinder);
    add(&mut text, MOUNT_OPTIONS, Origin::Vlinder);
    text += "\nOf mount(8) and FUSE:\n";
    add(&mut text, MOUNT_OPTIONS, Origin::Mount);
    text.trim_end().to_owned()
}

fn add<T>(text: &mut String, table: &[MountOption<T>], origin: Origin) {
    for option in table.iter().filter(|option| option.origin == origin) {
        let is_of = |name: &str| option.names.iter().any(|(known, _)| *known == name);
        let switches = || SWITCHES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let help =
            if is_of("disable") { format!("{}: {}", option.help, switches()) } else { option.help.into() };
        add_row(text, 2, option.shown, &help);
        if is_of("rescue") {
            RESCUE_PARTS.iter().for_each(|part| add_row(text, 4, part.names[0], part.help));
        }
    }
}

/// A name, and what it is about: beside it where the name leaves room, and below.
fn add_row(text: &mut String, indent: usize, name: &str, help: &str) {
    let mut line = format!("{:indent$}{name}", "");
    if line.len() + 1 > COLUMN {
        *text += &line;
        *text += "\n";
        line.clear();
    }
    for word in help.split_whitespace() {
        if line.len() < COLUMN {
            line = format!("{line:COLUMN$}{word}");
        } else if line.len() + 1 + word.len() > COLUMNS {
            *text += &line;
            *text += "\n";
            line = format!("{:COLUMN$}{word}", "");
        } else {
            line += " ";
            line += word;
        }
    }
    *text += &line;
    *text += "\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_stand_alone_and_help_is_wrapped() {
        let mut text = String::new();
        add_row(&mut text, 2, "acl, noacl", "whether ACLs are honoured");
        add_row(&mut text, 2, "subvol=PATH, subvolid=N", "the subvolume to show, not the one by default");
        let expected = "  acl, noacl        whether ACLs are honoured
  subvol=PATH, subvolid=N
                    the subvolume to show, not the one by
                    default
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_table_of_options_fits_a_page_of_the_manual() {
        // 80 columns, of which man(1) indents 14 and leaves 2; a longer line would be broken there and fall
        // out of its column.
        for line in text().lines().filter(|line| line.starts_with("  ")) {
            assert!(line.len() <= 64, "{} columns: {line}", line.len());
        }
    }

    #[test]
    fn every_option_that_is_read_is_shown_or_is_the_opposite_of_one() {
        let text = text();
        for (shown, names) in OPEN_OPTIONS.iter().map(|option| (option.shown, option.names.len())) {
            assert!(names > 0 && text.contains(shown), "{shown}");
        }
        assert!(MOUNT_OPTIONS.iter().all(|option| text.contains(option.shown)));
        assert!(SWITCHES.iter().all(|(name, _)| text.contains(name)));
    }
}
