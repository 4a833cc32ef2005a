//! The rule book: for each rule of the table in docs/reliability.md that one block, item or superblock can
//! break, something that keeps it and passes, and the same thing with one change, refused with exactly its
//! fault at exactly its place.
//!
//! What these cases prove is compared with the table, and the table with the faults that the code has.

mod blocks;
mod book;
mod extents;
mod files;
mod rare;
mod space;
mod superblocks;
mod table;

use book::Book;

#[test]
fn each_rule_accepts_what_keeps_it_and_names_what_breaks_it() {
    let mut book = Book::default();
    superblocks::prove(&mut book);
    blocks::prove(&mut book);
    files::prove(&mut book);
    space::prove(&mut book);
    extents::prove(&mut book);
    rare::prove(&mut book);
    println!("{} rules, {} cases", book.rules().len(), book.cases());
    table::compare(&book);
}

#[test]
fn the_table_names_every_fault_and_nothing_else() {
    table::compare_with_the_code();
}
