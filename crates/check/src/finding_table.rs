//! How the table of findings becomes a type: of each row a variant, its identifier, its severity and its
//! sentence.

macro_rules! finding_kinds {
    ($(
        $(#[doc = $doc:literal])+
        $severity:ident $id:literal $name:ident { $($(#[doc = $field_doc:literal])* $field:ident: $kind:ty),* $(,)? } $text:literal;
    )*) => {
        /// What is wrong.
        #[allow(missing_docs, reason = "a field without a comment is what its name says")]
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[non_exhaustive]
        pub enum FindingKind {
            $($(#[doc = $doc])+ #[error($text)] $name { $($(#[doc = $field_doc])* $field: $kind),* },)*
        }

        impl FindingKind {
            /// The identifier, which never changes its meaning.
            pub const fn id(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $id,)*
                }
            }

            /// How bad it is.
            pub const fn severity(&self) -> Severity {
                match self {
                    $(Self::$name { .. } => Severity::$severity,)*
                }
            }
        }
    };
}

pub(crate) use finding_kinds;
