//! Which file of a crate names what another one makes.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

use super::modules::{CrateFiles, ModulePath};

/// The names that one file takes from another, by both files.
pub type Edges = BTreeMap<(usize, usize), BTreeSet<String>>;

/// All edges of a crate. A name that is only handed on (`pub use`) ties nobody: its users are tied to the
/// file that makes it.
pub fn edges(files: &CrateFiles) -> Edges {
    let mut edges = Edges::new();
    for (at, module) in files.modules() {
        let mut note = |path: &[String]| {
            let Some(target) = files.file_of(at, path).filter(|&target| target != module.file) else {
                return;
            };
            let name = path.last().cloned().unwrap_or_default();
            edges.entry((module.file, target)).or_default().insert(name);
        };
        for import in module.imports.iter().filter(|import| !import.is_export && import.name.is_some()) {
            note(&import.path);
        }
        for item in &module.items {
            let mut paths = Vec::new();
            collect_paths(item.to_token_stream(), &mut paths);
            paths.iter().filter(|path| path.len() > 1).for_each(|path| note(path));
        }
        note_globs(files, at, &mut edges);
    }
    edges
}

/// `use super::*` outside of tests ties a file to the whole module.
fn note_globs(files: &CrateFiles, at: &ModulePath, edges: &mut Edges) {
    let Some((_, module)) = files.modules().find(|(path, _)| *path == at) else { return };
    for import in module.imports.iter().filter(|import| import.name.is_none() && !import.is_export) {
        let any_item: Vec<String> = import.path.iter().cloned().chain(["*".to_owned()]).collect();
        if let Some(target) = files.file_of(at, &any_item).filter(|&target| target != module.file) {
            edges.entry((module.file, target)).or_default().insert("*".to_owned());
        }
    }
}

/// All `a::b::c` in code, whatever they stand for; in the arguments of macros too.
fn collect_paths(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_colon =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    let mut position = 0;
    while position < tokens.len() {
        match &tokens[position] {
            TokenTree::Group(group) => collect_paths(group.stream(), paths),
            TokenTree::Ident(first) => {
                let mut path = vec![first.to_string()];
                while is_colon(tokens.get(position + 1)) && is_colon(tokens.get(position + 2)) {
                    let Some(TokenTree::Ident(next)) = tokens.get(position + 3) else { break };
                    path.push(next.to_string());
                    position += 3;
                }
                paths.push(path);
            }
            _ => {}
        }
        position += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tidy::source::Source;

    /// Edges as `from -> to: names`.
    fn told(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::new(Path::new("src").join(path), (*text).to_owned()))
            .collect();
        let files = CrateFiles::parse(Path::new("src"), &sources.iter().collect::<Vec<_>>()).unwrap();
        let name = |file: usize| files.path(file).strip_prefix("src").unwrap().display().to_string();
        let tell = |((from, to), names): (&(usize, usize), &BTreeSet<String>)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("{} -> {}: {}", name(*from), name(*to), names.join(" "))
        };
        edges(&files).iter().map(tell).collect()
    }

    #[test]
    fn an_import_ties_a_file_to_the_one_that_makes_the_name() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::Thing;"),
            ("a.rs", "pub struct Thing; pub fn work() {}"),
            ("b.rs", "use crate::Thing; use std::fmt::Debug; fn f(t: Thing) { crate::a::work() }"),
        ];
        assert_eq!(told(&files), ["b.rs -> a.rs: Thing work"]);
    }

    #[test]
    fn paths_lead_through_parents_modules_and_macros() {
        let files = [
            ("lib.rs", "mod outer; fn top() {}"),
            ("outer/mod.rs", "mod inner; mod other; use other::Tool; fn own() { inner::run(); }"),
            ("outer/inner.rs", "pub fn run() { super::super::top(); say!(super::Tool::new()); }"),
            ("outer/other.rs", "pub struct Tool; use super::inner; fn f() { inner::run(); }"),
        ];
        let expected = [
            "outer/mod.rs -> outer/inner.rs: run",
            "outer/mod.rs -> outer/other.rs: Tool",
            "outer/inner.rs -> lib.rs: top",
            "outer/inner.rs -> outer/other.rs: new",
            "outer/other.rs -> outer/inner.rs: run",
        ];
        let mut found = told(&files);
        found.sort();
        let mut expected = expected.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn tests_and_names_of_other_crates_tie_nothing() {
        let files = [
            ("lib.rs", "mod a; mod b; use anyhow::Result;"),
            ("a.rs", "pub struct A; #[cfg(test)] mod tests { use super::*; use crate::b::B; }"),
            ("b.rs", "pub struct B; #[cfg(test)] use crate::a::A;"),
        ];
        assert_eq!(told(&files), Vec::<String>::new());
    }
}
