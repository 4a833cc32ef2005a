//! How much one type is: its methods and the files they stand in, its fields, and whether its name is its
//! own.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Fields, ImplItem, Item, Type, Visibility};

use super::modules::{CrateFiles, item_name};
use crate::tidy::baseline::Measure;

/// Methods of one type: inherent ones, and those of traits of the same crate that only this type implements.
const MAX_METHODS: usize = 40;
/// Files that the methods of one type stand in.
const MAX_FILES: usize = 3;
/// A struct with more fields is named at the end: perhaps some of them go together.
const MANY_FIELDS: usize = 12;

/// What one type has, over all files of its crate.
#[derive(Default)]
struct Found {
    methods: usize,
    files: BTreeSet<usize>,
    /// How many types have this name.
    definitions: usize,
    fields: usize,
    open_fields: usize,
    /// The type that `Deref` leads to.
    derefs_to: Option<String>,
}

/// All measures of the types of a crate.
pub fn measures(name: &str, files: &CrateFiles) -> Vec<Measure> {
    let types = collect(files);
    let mut measures = Vec::new();
    for (type_name, found) in &types {
        let mut measure = |what: &str, size: usize, limit: usize, advice: &'static str| {
            measures.push(Measure { name: format!("{name}: {what} {type_name}"), size, limit, advice });
        };
        measure("methods of", found.methods, MAX_METHODS, "take the type apart by concept");
        measure("files with methods of", found.files.len(), MAX_FILES, "take the type apart by concept");
        measure("types named", found.definitions, 1, "give each type a name of its own");
        let is_large = |found: &Found| found.methods > MAX_METHODS || found.files.len() > MAX_FILES;
        if is_large(found) {
            measure(
                "fields visible outside of their module of",
                found.open_fields,
                0,
                "make the fields private",
            );
        }
        let target = found.derefs_to.as_ref().and_then(|target| types.get(target));
        let leads_to_large = target.is_some_and(is_large);
        measure("Deref to a large type from", usize::from(leads_to_large), 0, "hand on single methods");
    }
    measures
}

/// The structs with many fields, each with their number.
pub fn wide(name: &str, files: &CrateFiles) -> Vec<String> {
    let types = collect(files);
    let wide = types.iter().filter(|(_, found)| found.fields > MANY_FIELDS);
    wide.map(|(type_name, found)| format!("{name} {type_name} {}", found.fields)).collect()
}

fn collect(files: &CrateFiles) -> BTreeMap<String, Found> {
    let mut types: BTreeMap<String, Found> = BTreeMap::new();
    let mut traits: BTreeSet<String> = BTreeSet::new();
    // Methods of traits by the trait: which type implements it, in which file, with how many methods.
    let mut implemented: BTreeMap<String, Vec<(String, usize, usize)>> = BTreeMap::new();
    for (_, module) in files.modules() {
        for item in &module.items {
            match item {
                Item::Struct(_) | Item::Enum(_) | Item::Union(_) => {
                    let Some(name) = item_name(item) else { continue };
                    let found = types.entry(name.to_string()).or_default();
                    found.definitions += 1;
                    note_fields(item, found);
                }
                Item::Trait(item) => {
                    traits.insert(item.ident.to_string());
                }
                Item::Impl(item) => {
                    let Some(name) = type_name(&item.self_ty) else { continue };
                    let methods = item.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
                    let Some((_, path, _)) = &item.trait_ else {
                        let found = types.entry(name).or_default();
                        found.methods += methods;
                        if methods > 0 {
                            found.files.insert(module.file);
                        }
                        continue;
                    };
                    let Some(implemented_trait) =
                        path.segments.last().map(|segment| segment.ident.to_string())
                    else {
                        continue;
                    };
                    if implemented_trait == "Deref" {
                        types.entry(name).or_default().derefs_to = deref_target(&item.items);
                        continue;
                    }
                    implemented.entry(implemented_trait).or_default().push((name, module.file, methods));
                }
                _ => {}
            }
        }
    }
    for (_, implementors) in implemented.into_iter().filter(|(name, _)| traits.contains(name)) {
        if let [(name, file, methods)] = implementors.as_slice() {
            let found = types.entry(name.clone()).or_default();
            found.methods += methods;
            found.files.insert(*file);
        }
    }
    types
}

fn note_fields(item: &Item, found: &mut Found) {
    let Item::Struct(item) = item else { return };
    let Fields::Named(fields) = &item.fields else { return };
    found.fields = found.fields.max(fields.named.len());
    let is_open = |field: &&syn::Field| !matches!(field.vis, Visibility::Inherited);
    found.open_fields += fields.named.iter().filter(is_open).count();
}

/// The name of the type that an `impl` is for, references taken away.
fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => None,
    }
}

fn deref_target(items: &[ImplItem]) -> Option<String> {
    items.iter().find_map(|item| match item {
        ImplItem::Type(item) => type_name(&item.ty),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tidy::source::Source;

    fn parse(files: &[(&str, String)]) -> CrateFiles {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(Path::new("src").join(path), text.clone())).collect();
        CrateFiles::parse(Path::new("src"), &sources.iter().collect::<Vec<_>>()).unwrap()
    }

    fn excesses(files: &[(&str, String)]) -> Vec<String> {
        let files = parse(files);
        let past = |measure: &Measure| measure.size > measure.limit;
        let tell = |measure: Measure| format!("{} {}", measure.name, measure.size);
        measures("x", &files).into_iter().filter(past).map(tell).collect()
    }

    fn methods(count: usize) -> String {
        (0..count).map(|number| format!("fn m{number}() {{}}")).collect()
    }

    #[test]
    fn methods_are_counted_over_all_files_with_own_traits() {
        let large = |own: usize| {
            [
                ("a.rs", format!("pub struct Big; impl Big {{ {} }}", methods(own))),
                ("b.rs", "trait Part { fn p(); } impl Part for super::a::Big { fn p() {} }".to_owned()),
                // A trait with two implementors is an interface.
                (
                    "c.rs",
                    "trait Both { fn b(); } impl Both for Big { fn b() {} } impl Both for u8 { fn b() {} }"
                        .to_owned(),
                ),
            ]
        };
        assert_eq!(excesses(&large(39)), Vec::<String>::new());
        assert_eq!(excesses(&large(40)), ["x: methods of Big 41"]);
    }

    #[test]
    fn files_fields_names_and_deref_are_measured() {
        let scattered =
            ["a.rs", "b.rs", "c.rs", "d.rs"].map(|path| (path, "impl Big { fn f() {} }".to_owned()));
        let mut files = scattered.to_vec();
        files.push(("e.rs", "pub struct Big { pub(crate) open: u8, own: u8 } struct Twice;".to_owned()));
        files.push(("f.rs", "struct Twice; impl Deref for View { type Target = Big; }".to_owned()));
        let expected = [
            "x: files with methods of Big 4",
            "x: fields visible outside of their module of Big 1",
            "x: types named Twice 2",
            "x: Deref to a large type from View 1",
        ];
        assert_eq!(excesses(&files), expected);
    }

    #[test]
    fn structs_with_many_fields_are_named() {
        let with_fields = |count: usize| {
            let fields: String = (0..count).map(|number| format!("f{number}: u8,")).collect();
            wide("x", &parse(&[("a.rs", format!("struct Wide {{ {fields} }}"))]))
        };
        assert_eq!(with_fields(12), Vec::<String>::new());
        assert_eq!(with_fields(13), ["x Wide 13"]);
    }
}
