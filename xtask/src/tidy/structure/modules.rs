//! The files of a crate as a tree of modules: which names a module holds, and which file each of them comes
//! from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::punctuated::Punctuated;
use syn::{Item, UseTree};

use crate::tidy::source::Source;

/// The path of a module from the root of its crate.
pub type ModulePath = Vec<String>;

/// A name that one module takes from another, as it is written: `use super::a::{B as C}` is `C` from
/// `super::a::B`.
#[derive(Debug, Clone)]
pub struct Import {
    /// What the name is called here; none for `*`.
    pub name: Option<String>,
    /// The path as it is written.
    pub path: Vec<String>,
    /// Whether the name is handed on: `pub use`.
    pub is_export: bool,
}

/// A module: a file, or a part of one.
pub struct Module {
    /// The file that it stands in.
    pub file: usize,
    /// What it imports.
    pub imports: Vec<Import>,
    /// Its items, without imports, modules and tests.
    pub items: Vec<Item>,
}

/// All modules of one crate, without its tests.
pub struct CrateFiles {
    paths: Vec<PathBuf>,
    modules: BTreeMap<ModulePath, Module>,
}

impl CrateFiles {
    /// Parses the files of a crate, whose root lies in `head`. Binaries in `head/bin` are crates of their
    /// own, and left out.
    pub fn parse(head: &Path, sources: &[&Source]) -> Result<Self> {
        let mut files = Self { paths: Vec::new(), modules: BTreeMap::new() };
        for source in sources {
            let below = source.path.strip_prefix(head)?;
            if below.starts_with("bin") {
                continue;
            }
            let parsed = syn::parse_file(&source.text).with_context(|| source.path.display().to_string())?;
            if is_test(&parsed.attrs) {
                continue;
            }
            let file = files.paths.len();
            files.paths.push(source.path.clone());
            files.add_module(module_path(below), file, parsed.items);
        }
        Ok(files)
    }

    fn add_module(&mut self, path: ModulePath, file: usize, items: Vec<Item>) {
        let mut module = Module { file, imports: Vec::new(), items: Vec::new() };
        for item in items {
            match item {
                Item::Use(item) if !is_test(&item.attrs) => {
                    let is_export = !matches!(item.vis, syn::Visibility::Inherited);
                    flatten(&item.tree, &mut Vec::new(), is_export, &mut module.imports);
                }
                Item::Mod(inner) if !is_test(&inner.attrs) => {
                    if let Some((_, items)) = inner.content {
                        let mut path = path.clone();
                        path.push(inner.ident.to_string());
                        self.add_module(path, file, items);
                    }
                }
                Item::Use(_) | Item::Mod(_) => {}
                item if is_test(attributes(&item)) => {}
                item => module.items.push(item),
            }
        }
        self.modules.insert(path, module);
    }

    /// The path of a file.
    pub fn path(&self, file: usize) -> &Path {
        &self.paths[file]
    }

    /// All modules with their paths.
    pub fn modules(&self) -> impl Iterator<Item = (&ModulePath, &Module)> {
        self.modules.iter()
    }

    /// The file that makes the item that `path`, written in the module `at`, leads to; none where the path
    /// leads out of the crate or stands for a module.
    pub fn file_of(&self, at: &ModulePath, path: &[String]) -> Option<usize> {
        let absolute = self.absolute(at, path, 0)?;
        if self.modules.contains_key(&absolute) {
            return None;
        }
        let (_, module) = absolute.split_last()?;
        self.modules.get(module).map(|module| module.file)
    }

    /// The path of an item or module from the root of the crate, imports followed.
    fn absolute(&self, at: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        // Imports that lead in a circle do not compile; the bound is for what this reader misunderstands.
        if depth > 16 {
            return None;
        }
        let mut here = at.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (here, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {}
            first if self.holds(at, first) => {}
            _ => return None,
        }
        while let Some((first, others)) = rest.split_first() {
            if first == "super" {
                here.pop()?;
                rest = others;
                continue;
            }
            let mut inner = here.clone();
            inner.push(first.clone());
            if self.modules.contains_key(&inner) {
                (here, rest) = (inner, others);
                continue;
            }
            let module = self.modules.get(&here)?;
            let import = module.imports.iter().find(|import| import.name.as_ref() == Some(first));
            if let Some(import) = import.filter(|import| import.path != path) {
                let target = self.absolute(&here, &import.path, depth + 1)?;
                if others.is_empty() || !self.modules.contains_key(&target) {
                    return Some(target);
                }
                (here, rest) = (target, others);
                continue;
            }
            let globs = module.imports.iter().filter(|import| import.name.is_none());
            for glob in globs.filter(|_| !makes(module, first)) {
                let Some(target) = self.absolute(&here, &glob.path, depth + 1) else { continue };
                if self.modules.get(&target).is_some_and(|module| makes(module, first)) {
                    return Some(target.into_iter().chain([first.clone()]).collect());
                }
            }
            return Some(inner);
        }
        Some(here)
    }

    /// Whether a module has a module of that name below it, or an import that has it.
    fn holds(&self, at: &ModulePath, name: &str) -> bool {
        let below: ModulePath = at.iter().cloned().chain([name.to_owned()]).collect();
        let is_import = |import: &Import| import.name.as_deref() == Some(name);
        self.modules.contains_key(&below)
            || self.modules.get(at).is_some_and(|module| module.imports.iter().any(is_import))
    }
}

/// Whether a module makes an item of that name itself.
fn makes(module: &Module, name: &str) -> bool {
    module.items.iter().any(|item| item_name(item).is_some_and(|ident| *ident == name))
}

/// `a/b.rs`, `a/b/mod.rs`: the module `a::b`; `lib.rs` and `main.rs` are the root.
fn module_path(below: &Path) -> ModulePath {
    let mut path: ModulePath =
        below.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

fn flatten(tree: &UseTree, path: &mut Vec<String>, is_export: bool, imports: &mut Vec<Import>) {
    match tree {
        UseTree::Path(part) => {
            path.push(part.ident.to_string());
            flatten(&part.tree, path, is_export, imports);
            path.pop();
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| flatten(tree, path, is_export, imports));
        }
        UseTree::Name(part) if part.ident == "self" => {
            imports.push(Import { name: path.last().cloned(), path: path.clone(), is_export });
        }
        UseTree::Name(part) => imports.push(import(path, &part.ident, &part.ident, is_export)),
        UseTree::Rename(part) if part.ident == "self" => {
            imports.push(Import { name: Some(part.rename.to_string()), path: path.clone(), is_export });
        }
        UseTree::Rename(part) => imports.push(import(path, &part.ident, &part.rename, is_export)),
        UseTree::Glob(_) => imports.push(Import { name: None, path: path.clone(), is_export }),
    }
}

fn import(path: &[String], ident: &syn::Ident, name: &syn::Ident, is_export: bool) -> Import {
    let path = path.iter().cloned().chain([ident.to_string()]).collect();
    Import { name: Some(name.to_string()), path, is_export }
}

/// Whether an item is there in tests alone: its `#[cfg(…)]` asks for `test` and not for its absence.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|attribute| attribute.parse_args().ok()).any(|condition| asks_for_test(&condition))
}

fn asks_for_test(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            let inner = list.parse_args_with(Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
            let mut inner = inner.into_iter().flatten();
            if list.path.is_ident("all") {
                inner.any(|inner| asks_for_test(&inner))
            } else {
                list.path.is_ident("any") && inner.all(|inner| asks_for_test(&inner))
            }
        }
        syn::Meta::NameValue(_) => false,
    }
}

/// The name of an item that has one.
pub fn item_name(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_in_tests_alone_is_told_by_its_condition() {
        let is_test = |condition: &str| {
            let item: Item = syn::parse_str(&format!("#[cfg({condition})] struct A;")).unwrap();
            is_test(attributes(&item))
        };
        for condition in ["test", "all(test, not(feature = \"x\"))", "any(test, all(test, unix))"] {
            assert!(is_test(condition), "{condition}");
        }
        for condition in ["not(test)", "any(test, unix)", "feature = \"test\"", "all(unix, not(test))"] {
            assert!(!is_test(condition), "{condition}");
        }
    }
}
