//! Feature lists as `mkfs.btrfs -O` takes them.

use super::raw::MkfsFeatures;

/// A feature list that can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureError {
    /// No such feature.
    #[error(
        "unknown feature {name:?}; known are extref, skinny-metadata, no-holes, free-space-tree (fst), block-group-tree (bgt) and mixed-bg, each with ^ to turn it off"
    )]
    Unknown {
        /// What was given.
        name: String,
    },
    /// A feature of Btrfs that can't be made yet.
    #[error("feature {name} can't be made by this version; leave it out")]
    Unsupported {
        /// Its name.
        name: String,
    },
}

/// A switch of [`MkfsFeatures`].
type Switch = fn(&mut MkfsFeatures) -> &mut bool;

const SWITCHES: [(&str, Switch); 8] = [
    ("extref", |features| &mut features.extref),
    ("skinny-metadata", |features| &mut features.skinny_metadata),
    ("no-holes", |features| &mut features.no_holes),
    ("free-space-tree", |features| &mut features.free_space_tree),
    ("fst", |features| &mut features.free_space_tree),
    ("block-group-tree", |features| &mut features.block_group_tree),
    ("bgt", |features| &mut features.block_group_tree),
    ("mixed-bg", |features| &mut features.mixed_groups),
];

/// What btrfs-progs 6.19 makes beside those. All are off by default, so turning one off is no request at all.
const UNSUPPORTED: [&str; 10] = [
    "quota",
    "squota",
    "raid56",
    "raid1c34",
    "zoned",
    "extent-tree-v2",
    "raid-stripe-tree",
    "rst",
    "remap-tree",
    "list-all",
];

impl MkfsFeatures {
    /// Names that [`apply`](Self::apply) takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SWITCHES.iter().map(|(name, _)| *name)
    }

    /// Applies a list of names joined by commas; `^name` turns off. Empty parts are skipped.
    ///
    /// # Errors
    /// A name that is not known, or of a feature that can't be made.
    pub fn apply(&mut self, list: &str) -> Result<(), FeatureError> {
        for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, on) = match part.strip_prefix('^') {
                Some(name) => (name, false),
                None => (part, true),
            };
            match SWITCHES.iter().find(|(known, _)| *known == name) {
                Some((_, switch)) => *switch(self) = on,
                None if UNSUPPORTED.contains(&name) && on => {
                    return Err(FeatureError::Unsupported { name: name.to_owned() });
                }
                None if UNSUPPORTED.contains(&name) => {}
                None => return Err(FeatureError::Unknown { name: name.to_owned() }),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_switch_on_and_off_in_their_order() {
        let mut features = MkfsFeatures::default();
        features.apply("^bgt,^free-space-tree,mixed-bg").unwrap();
        let expected = MkfsFeatures {
            block_group_tree: false,
            free_space_tree: false,
            mixed_groups: true,
            ..MkfsFeatures::default()
        };
        assert_eq!(features, expected);
        features.apply("fst,block-group-tree,^mixed-bg,,^quota").unwrap();
        assert_eq!(features, MkfsFeatures::default());
        for name in MkfsFeatures::names() {
            let (mut on, mut off) = (MkfsFeatures::default(), MkfsFeatures::default());
            on.apply(name).unwrap();
            off.apply(&format!("^{name}")).unwrap();
            assert_ne!(on, off, "{name}");
        }
    }

    #[test]
    fn unknown_and_unsupported_names_are_told_apart() {
        let mut features = MkfsFeatures::default();
        assert_eq!(features.apply("extref,frob"), Err(FeatureError::Unknown { name: "frob".into() }));
        assert_eq!(features.apply("zoned"), Err(FeatureError::Unsupported { name: "zoned".into() }));
    }
}
