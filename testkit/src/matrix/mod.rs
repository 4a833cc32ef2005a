//! The matrix: images that the kernel made, in all of which every two properties meet at least once
//! ([`factors`], [`covering`]). Each is filled by the kernel ([`make`]), walked by the kernel, and then
//! judged ([`judge`]): vlinder's walk must be the same, its check clean, `btrfs check` clean; and where
//! vlinder writes, what it wrote must be accepted by both checkers and by a mount of the kernel's that goes
//! on with it.

pub mod covering;
pub mod factors;
pub mod judge;
pub mod make;

pub use covering::{Coverage, Row, Space, shuffle};
pub use factors::{FACTORS, IMPOSSIBLE, PROFILES, Profiles};

/// An image of the matrix, by what it is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixRecipe {
    /// Kind of all checksums.
    pub checksum: &'static str,
    /// Bytes of a tree block, as mkfs takes them.
    pub nodes: &'static str,
    /// Profiles and devices.
    pub profiles: &'static str,
    /// Extent items of tree blocks are short.
    pub has_skinny: bool,
    /// Names may overflow.
    pub has_extref: bool,
    /// Holes have no items.
    pub has_no_holes: bool,
    /// How free space is known: not at all, by files (v1), by a tree, by a tree and group items in one of
    /// their own.
    pub space: &'static str,
    /// Options of the mount that fills it.
    pub options: &'static str,
    /// What is done in it.
    pub state: &'static str,
}

impl MatrixRecipe {
    /// The recipe of a row.
    pub fn of(space: &Space, row: &Row) -> Self {
        let value = |name| space.value(row, name);
        MatrixRecipe {
            checksum: value("checksum"),
            nodes: value("nodes"),
            profiles: value("profiles"),
            has_skinny: value("skinny") == "on",
            has_extref: value("extref") == "on",
            has_no_holes: value("no-holes") == "on",
            space: value("space"),
            options: value("options"),
            state: value("state"),
        }
    }

    /// Its profiles.
    ///
    /// # Panics
    /// If there are none of that name.
    pub fn profile(&self) -> &'static Profiles {
        match PROFILES.iter().find(|one| one.name == self.profiles) {
            Some(found) => found,
            None => panic!("no profiles {}", self.profiles),
        }
    }

    /// The options of the mount that fills it, and of every later one that writes.
    pub fn mount_options(&self) -> String {
        let space = match self.space {
            "none" => "nospace_cache",
            "v1" => "space_cache=v1",
            _ => "",
        };
        let options = if self.options == "defaults" { "" } else { self.options };
        let parts = [options, space].into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(",")
    }
}

impl std::fmt::Display for MatrixRecipe {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MatrixRecipe { checksum, nodes, profiles, space, options, state, .. } = self;
        let mut features = Vec::new();
        for (has, name) in
            [(self.has_skinny, "skinny"), (self.has_extref, "extref"), (self.has_no_holes, "no-holes")]
        {
            features.push(if has { name.to_owned() } else { format!("^{name}") });
        }
        let features = features.join(",");
        write!(formatter, "{checksum} {nodes} {profiles} {features} space={space} {options} {state}")
    }
}
