//! The judge is shown states that break a promise, and states that take a liberty.

use vlinder_base::sync::Arc;

use super::History;
use crate::subject::{Recipe, Subject};
use crate::workload::{Model, Operation as O, Pattern, Place, RenameMode, SetMode, Token};

const START: i64 = 1_700_000_000;

fn at(token: u32) -> Place {
    Place { subvolume: Token::ROOT, object: Token(token) }
}

fn create(directory: u32, name: &str, token: u32) -> O {
    O::CreateFile { directory: at(directory), name: name.into(), permissions: 0o644, token: Token(token) }
}

fn mkdir(name: &str, token: u32) -> O {
    O::CreateDirectory { directory: at(0), name: name.into(), permissions: 0o755, token: Token(token) }
}

fn write(file: u32, offset: u64, length: u64, byte: u8) -> O {
    O::Write { file: at(file), offset, length, pattern: Pattern::Same(byte), direct: false }
}

fn link(file: u32, name: &str) -> O {
    O::Link { file: at(file), directory: at(0), name: name.into() }
}

fn unlink(name: &str) -> O {
    O::Unlink { directory: at(0), name: name.into() }
}

fn rename(from_name: &str, to_name: &str) -> O {
    let (from, to, mode) = (at(0), at(0), RenameMode::Replace);
    O::Rename { from, from_name: from_name.into(), to, to_name: to_name.into(), mode, token: Token(99) }
}

fn chmod(file: u32) -> O {
    O::SetPermissions { file: at(file), permissions: 0o600 }
}

fn set_attribute(file: u32) -> O {
    O::SetAttribute { file: at(file), name: b"user.a".into(), value: b"1".into(), mode: SetMode::Either }
}

fn in_place(file: u32) -> O {
    O::SetFlags { file: at(file), set: 1 << 1, clear: 0 }
}

fn subvolume(name: &str, token: u32) -> O {
    O::CreateSubvolume { directory: at(0), name: name.into(), token: Token(token) }
}

fn fsync(file: u32) -> O {
    O::Fsync { file: at(file), data_only: false }
}

fn fdatasync(file: u32) -> O {
    O::Fsync { file: at(file), data_only: true }
}

/// Carries out operations, each at its time.
fn stage(operations: &[(usize, &O)]) -> (Subject, History) {
    let recipe = Recipe { device_bytes: 256 << 20, ..Recipe::default() };
    let mut subject = Subject::open(Arc::new(recipe.in_memory()), "", 1, (START, 0)).unwrap();
    let mut model = Model::new(0o755, (START, 0));
    subject.learn(&mut model, &[Model::root_directory(5)]).unwrap();
    let mut history = History::default();
    history.add(&model, 1);
    for (time, operation) in operations {
        let now = (START + *time as i64, 0);
        subject.set_time(now);
        let outcome = subject.carry_out(&model, operation).unwrap();
        assert!(outcome.is_ok(), "{operation:?}: {outcome:?}");
        let touched = model.take_in(operation, now, &outcome).unwrap();
        subject.learn(&mut model, &touched).unwrap();
        history.add(&model, 1);
        history.note(operation);
    }
    (subject, history)
}

/// Judges, after a commit behind the first operations and a cut behind all, a state that `kept` of them and
/// others made.
fn judge(before: &[O], after: &[O], kept: &[usize], others: &[O]) -> Result<(), String> {
    let all: Vec<(usize, &O)> = before.iter().chain(after).enumerate().collect();
    let (_, history) = stage(&all);
    let mut found: Vec<(usize, &O)> = kept.iter().map(|number| all[*number]).collect();
    found.extend(others.iter().map(|operation| (900, operation)));
    let (subject, _) = stage(&found);
    history.judge_from(&subject, before.len(), all.len())
}

fn refuses(word: &str, judged: Result<(), String>) {
    match judged {
        Ok(()) => panic!("not refused ({word})"),
        Err(error) => assert!(error.contains(word), "{word}: {error}"),
    }
}

#[test]
fn what_an_fsync_of_a_file_promised_is_missed() {
    let written = [create(0, "a", 1), write(1, 0, 100, 1), fsync(1)];
    assert_eq!(judge(&[], &written, &[0, 1], &[]), Ok(()));
    refuses("since its fsync", judge(&[], &written, &[], &[]));
    refuses("since its fsync (step 3)", judge(&[], &written, &[0], &[]));
    // Other bytes, written at the same time.
    let (other, [made, _, _]) = (write(1, 0, 100, 2), &written);
    let (_, history) = stage(&written.iter().enumerate().collect::<Vec<_>>());
    refuses("the content", history.judge_from(&stage(&[(0, made), (1, &other)]).0, 0, 3));
    for change in [chmod(1), set_attribute(1)] {
        let after = [change, fsync(1)];
        refuses("since its fsync (step 2)", judge(&[create(0, "a", 1)], &after, &[0], &[]));
        assert_eq!(judge(&[create(0, "a", 1)], &after, &[0, 1], &[]), Ok(()));
    }
    let two_names = [create(0, "a", 1), link(1, "b")];
    refuses("since its fsync", judge(&two_names, &[unlink("b"), fsync(1)], &[0, 1], &[]));
    refuses("since its fsync", judge(&two_names[..1], &[link(1, "b"), fsync(1)], &[0], &[]));
    refuses("since its fsync", judge(&two_names[..1], &[rename("a", "c"), fsync(1)], &[0], &[]));
    // Its place was taken: one of both has the name.
    let taken = [create(0, "a", 1), fsync(1), create(0, "b", 2), rename("b", "a")];
    assert_eq!(judge(&[], &taken, &[0, 2, 3], &[]), Ok(()));
    assert_eq!(judge(&[], &taken, &[0, 2], &[]), Ok(()));
    refuses("since its fsync", judge(&[], &taken, &[0, 2], &[unlink("a")]));
}

#[test]
fn what_an_fsync_of_a_directory_promised_is_missed() {
    let (before, created) = ([mkdir("d", 1)], [create(1, "x", 2), write(2, 0, 100, 1), fsync(1)]);
    refuses("since its fsync", judge(&before, &created, &[0], &[]));
    // What the new file holds was not promised.
    assert_eq!(judge(&before, &created, &[0, 1], &[]), Ok(()));
    assert_eq!(judge(&before, &created, &[0, 1, 2], &[]), Ok(()));
    let removed = [O::Unlink { directory: at(1), name: b"x".into() }, fsync(1)];
    refuses("since its fsync", judge(&[mkdir("d", 1), create(1, "x", 2)], &removed, &[0, 1], &[]));
    refuses("since its fsync", judge(&before, &[set_attribute(1), fsync(1)], &[0], &[]));
}

#[test]
fn fdatasync_promises_content_and_a_name() {
    let after = [chmod(1), write(1, 0, 100, 1), link(1, "b"), fdatasync(1)];
    let before = [create(0, "a", 1)];
    refuses("since its fsync", judge(&before, &after, &[0, 1, 3], &[]));
    assert_eq!(judge(&before, &after, &[0, 1, 2], &[]), Ok(()));
    assert_eq!(judge(&before, &after, &[0, 1, 2, 3], &[]), Ok(()));
    let new = [create(0, "a", 1), fdatasync(1)];
    refuses("is lost", judge(&[], &new, &[], &[]));
    let within = [create(1, "x", 2), fdatasync(1)];
    refuses("since its fsync", judge(&[mkdir("d", 1)], &within, &[0], &[]));
}

#[test]
fn what_was_not_fsynced_is_as_it_once_was() {
    let (before, renamed) = ([create(0, "a", 1)], [rename("a", "b")]);
    assert_eq!(judge(&before, &renamed, &[0], &[]), Ok(()));
    assert_eq!(judge(&before, &renamed, &[0, 1], &[]), Ok(()));
    refuses("as it never had", judge(&before, &renamed, &[0], &[link(1, "b")]));
    refuses("as it never had", judge(&before, &renamed, &[], &[]));
    refuses("as it never did", judge(&before, &renamed, &[0], &[rename("a", "c")]));
    let both = [create(0, "a", 1), create(0, "b", 2)];
    refuses("as it never did", judge(&both, &[write(2, 0, 9, 1), fsync(2)], &[0, 1, 2], &[unlink("a")]));
    // Mode and attributes each as they once were.
    let changed = [chmod(1), set_attribute(1)];
    assert_eq!(judge(&before, &changed, &[0, 2], &[]), Ok(()));
    refuses("once so: false", judge(&before, &changed, &[0], &[in_place(1)]));
    let made = [subvolume("s", 1)];
    refuses("subvolumes", judge(&made, &[create(0, "a", 2), fsync(2)], &[], &[]));
}

#[test]
fn only_what_is_written_in_place_is_mixed() {
    let new = [create(0, "a", 1), write(1, 0, 8192, 1)];
    let over = [write(1, 0, 8192, 2)];
    let half = write(1, 0, 4096, 2);
    let found = |before: &[O], after: &[O]| {
        let all: Vec<(usize, &O)> = before.iter().chain(after).enumerate().collect();
        let (_, history) = stage(&all);
        let mut made = all[..before.len()].to_vec();
        // At the time of the whole change.
        made.push((all.len() - 1, &half));
        history.judge_from(&stage(&made).0, before.len(), all.len())
    };
    refuses("the content", found(&new, &over));
    let [create, write] = new;
    assert_eq!(found(&[create, in_place(1), write], &over), Ok(()));
}
