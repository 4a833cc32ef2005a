//! Files that need each other, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Edges;

/// The circles: groups of files of which each reaches each other one. Files that stand in no circle are left
/// out.
pub fn find(edges: &Edges) -> Vec<Vec<usize>> {
    let mut targets: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for &(from, to) in edges.keys() {
        targets.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<usize, BTreeSet<usize>> =
        targets.keys().map(|&start| (start, reachable(start, &targets))).collect();
    let reaches = |from: usize, to: usize| reached.get(&from).is_some_and(|files| files.contains(&to));
    let mut circles: Vec<Vec<usize>> = Vec::new();
    for &file in targets.keys().filter(|&&file| reaches(file, file)) {
        match circles.iter_mut().find(|circle| reaches(circle[0], file) && reaches(file, circle[0])) {
            Some(circle) => circle.push(file),
            None => circles.push(vec![file]),
        }
    }
    circles
}

fn reachable(start: usize, targets: &BTreeMap<usize, BTreeSet<usize>>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(file) = waiting.pop() {
        for &target in targets.get(&file).into_iter().flatten() {
            if reached.insert(target) {
                waiting.push(target);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_reach_each_other_stand_in_a_circle() {
        let pairs = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (5, 6), (6, 5), (7, 0)];
        let edges: Edges = pairs.into_iter().map(|pair| (pair, BTreeSet::new())).collect();
        assert_eq!(find(&edges), [vec![0, 1, 2], vec![5, 6]]);
        assert!(find(&Edges::new()).is_empty());
    }
}
