use super::*;
use rustix::io::Errno;

/// Carries operations out as the model predicts them.
fn run(seed: u64, count: usize) -> (Model, Histogram) {
    let mut generator = Generator::new(seed, Limits::default());
    let mut model = Model::new(0o755, (0, 0));
    let mut histogram = Histogram::default();
    let (mut number, mut root) = (256, 255);
    for step in 0..count {
        let operation = generator.next(&mut model);
        let outcome = model.predict(&operation).map(|()| match &operation {
            Operation::CreateSubvolume { .. } | Operation::Snapshot { .. } => {
                root += 1;
                Some(FileId { root, number: 256 })
            }
            Operation::CreateFile { directory, .. }
            | Operation::CreateNode { directory, .. }
            | Operation::CreateDirectory { directory, .. }
            | Operation::CreateSymbolicLink { directory, .. }
            | Operation::CreateTemporary { directory, .. }
            | Operation::Rename { from: directory, .. } => {
                number += 1;
                model.file(*directory).map(|directory| FileId { root: directory.root, number })
            }
            _ => None,
        });
        histogram.count(operation.kind(), outcome.is_ok());
        let touched = model.take_in(&operation, (step as i64, 0), &outcome).unwrap();
        assert!(touched.iter().all(|file| model.node(*file).is_some()));
    }
    (model, histogram)
}

#[test]
fn every_kind_of_operation_succeeds_often() {
    let (model, histogram) = run(1, 30_000);
    println!("{histogram}");
    assert_eq!(histogram.rarer_than(100), []);
    assert!(model.inode_count() > 20);
}

#[test]
fn a_seed_replays_its_operations() {
    let render = |model: &Model| crate::walk::render(&model.walk().0);
    let (first, second) = (run(7, 2000).0, run(7, 2000).0);
    assert_eq!(render(&first), render(&second));
    assert_ne!(render(&first), render(&run(8, 2000).0));
}

#[test]
fn content_is_what_a_plain_vector_holds() {
    let choice = Choice::new(3);
    let mut content = Content::default();
    let mut plain: Vec<u8> = Vec::new();
    for round in 0..3000 {
        let (offset, length) = (choice.below(20_000), choice.size(20_000));
        match choice.below(4) {
            0 | 1 => {
                let bytes = Pattern::Random(round).bytes(offset, length);
                let end = (offset + length) as usize;
                if end > plain.len() && !bytes.is_empty() {
                    plain.resize(end, 0);
                }
                if !bytes.is_empty() {
                    plain[offset as usize..end].copy_from_slice(&bytes);
                }
                content.write(offset, &bytes);
            }
            2 => {
                let end = plain.len().min((offset + length) as usize);
                if (offset as usize) < end {
                    plain[offset as usize..end].fill(0);
                }
                content.zero(offset, length);
            }
            _ => {
                plain.resize(offset as usize, 0);
                content.resize(offset);
            }
        }
        assert_eq!(content.size(), plain.len() as u64);
        assert_eq!(content.read(0, content.size()), plain, "round {round}");
        assert_eq!(content.is_zero(0, content.size()), plain.iter().all(|byte| *byte == 0));
    }
    assert_eq!(content.hash(), crate::walk::short_hash(&plain));
}

#[test]
fn a_wrong_outcome_is_a_mismatch() {
    let mut model = Model::new(0o755, (0, 0));
    let directory = Place::default();
    let unlink = Operation::Unlink { directory, name: b"none".to_vec() };
    assert!(model.take_in(&unlink, (0, 0), &Ok(None)).is_err());
    assert!(model.take_in(&unlink, (0, 0), &Err(Errno::NOENT)).is_ok());
    let create =
        Operation::CreateFile { directory, name: b"a".to_vec(), permissions: 0o644, token: Token(1) };
    assert!(model.take_in(&create, (0, 0), &Err(Errno::IO)).is_err());
    let file = FileId { root: 5, number: 257 };
    assert_eq!(model.take_in(&create, (9, 0), &Ok(Some(file))).unwrap(), [Model::root_directory(5), file]);
    assert_eq!(model.node(file).and_then(|node| node.modified), Some((9, 0)));
}
