//! A pairwise covering array: few rows in which every two values of different factors meet at least once.

use std::collections::BTreeSet;

use vlinder_base::random::{Random, SeededRandom};

/// Something that can be one of several values.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: &'static [&'static str],
}

/// Two values that can't be together, and why.
#[derive(Clone, Copy, Debug)]
pub struct Impossible {
    /// Factor and value.
    pub one: (&'static str, &'static str),
    /// Another factor, and its value.
    pub other: (&'static str, &'static str),
    /// The reason.
    pub why: &'static str,
}

/// Position of a factor, position of its value.
type Choice = (usize, usize);

/// A row: for each factor the position of its value.
pub type Row = Vec<usize>;

/// Rows tried for each that is taken; more make the array a little smaller.
const CANDIDATES: usize = 40;

/// What has to be covered.
#[derive(Clone, Debug)]
pub struct Space {
    factors: Vec<Factor>,
    forbidden: BTreeSet<(Choice, Choice)>,
}

/// How an array covers the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// All pairs of values of two factors.
    pub pairs: usize,
    /// Those that can't be.
    pub impossible: usize,
    /// Those that some row has.
    pub covered: usize,
}

impl Coverage {
    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.covered + self.impossible == self.pairs
    }
}

impl Space {
    /// The factors, and what can't be together.
    ///
    /// # Panics
    /// If a pair names what is not there.
    pub fn new(factors: &[Factor], impossible: &[Impossible]) -> Self {
        let find = |(name, value): (&str, &str)| -> Choice {
            let position = factors.iter().position(|factor| factor.name == name);
            let value_at = |position: usize| factors[position].values.iter().position(|one| *one == value);
            match position.and_then(|position| value_at(position).map(|value| (position, value))) {
                Some(choice) => choice,
                None => panic!("no factor {name} with the value {value}"),
            }
        };
        let forbidden = impossible.iter().map(|pair| ordered(find(pair.one), find(pair.other))).collect();
        Space { factors: factors.to_vec(), forbidden }
    }

    /// Whether no two values of these exclude each other.
    fn allows(&self, chosen: &[Option<usize>], new: Choice) -> bool {
        let others =
            chosen.iter().enumerate().filter_map(|(factor, value)| value.map(|value| (factor, value)));
        others.filter(|other| other.0 != new.0).all(|other| !self.forbidden.contains(&ordered(other, new)))
    }

    /// Every pair that can be.
    fn pairs(&self) -> BTreeSet<(Choice, Choice)> {
        let mut pairs = BTreeSet::new();
        for (left, one) in self.factors.iter().enumerate() {
            for (right, other) in self.factors.iter().enumerate().skip(left + 1) {
                for value in 0..one.values.len() {
                    pairs.extend((0..other.values.len()).map(|second| ((left, value), (right, second))));
                }
            }
        }
        pairs.retain(|pair| !self.forbidden.contains(pair));
        pairs
    }

    /// Makes an array; the seed chooses among equally good ones.
    ///
    /// # Panics
    /// If the impossible pairs leave some value no row at all.
    pub fn cover(&self, seed: u64) -> Vec<Row> {
        let random = SeededRandom::new(seed);
        let mut open = self.pairs();
        let mut rows = Vec::new();
        while let Some(first) = pick(&open, &random) {
            let candidates = (0..CANDIDATES).filter_map(|_| self.candidate(first, &open, &random));
            let best = candidates.max_by_key(|row| gain(row, &open));
            let Some(row) = best else { panic!("{} can't be in any row", self.show(first)) };
            open.retain(|pair| !has(&row, pair));
            rows.push(row);
        }
        rows
    }

    /// A row with this pair, each further factor in random order as the one that covers most.
    fn candidate(
        &self,
        first: (Choice, Choice),
        open: &BTreeSet<(Choice, Choice)>,
        random: &SeededRandom,
    ) -> Option<Row> {
        let mut chosen: Vec<Option<usize>> = vec![None; self.factors.len()];
        for (factor, value) in [first.0, first.1] {
            chosen[factor] = Some(value);
        }
        let mut order: Vec<usize> =
            (0..self.factors.len()).filter(|factor| chosen[*factor].is_none()).collect();
        shuffle(&mut order, random);
        for factor in order {
            let values =
                (0..self.factors[factor].values.len()).filter(|value| self.allows(&chosen, (factor, *value)));
            let scored = values.map(|value| {
                let partners =
                    chosen.iter().enumerate().filter_map(|(other, value)| value.map(|value| (other, value)));
                let news =
                    partners.filter(|partner| open.contains(&ordered(*partner, (factor, value)))).count();
                (news, random.next_u64(), value)
            });
            chosen[factor] = Some(scored.max()?.2);
        }
        chosen.into_iter().collect()
    }

    /// Counts what these rows cover, from the rows alone.
    ///
    /// # Panics
    /// If a row has an impossible pair.
    pub fn coverage(&self, rows: &[Row]) -> Coverage {
        for row in rows {
            let broken = self.forbidden.iter().find(|pair| has(row, pair));
            assert!(broken.is_none(), "{row:?} has an impossible pair");
        }
        let possible = self.pairs();
        let covered = possible.iter().filter(|pair| rows.iter().any(|row| has(row, pair))).count();
        let impossible = self.forbidden.len();
        Coverage { pairs: possible.len() + impossible, impossible, covered }
    }

    /// The value of a factor in a row.
    ///
    /// # Panics
    /// If there is no such factor.
    pub fn value(&self, row: &Row, name: &str) -> &'static str {
        match self.factors.iter().position(|factor| factor.name == name) {
            Some(position) => self.factors[position].values[row[position]],
            None => panic!("no factor {name}"),
        }
    }

    fn show(&self, pair: (Choice, Choice)) -> String {
        let one = |(factor, value): Choice| {
            format!("{} {}", self.factors[factor].name, self.factors[factor].values[value])
        };
        format!("{} with {}", one(pair.0), one(pair.1))
    }
}

fn ordered(one: Choice, other: Choice) -> (Choice, Choice) {
    if one <= other { (one, other) } else { (other, one) }
}

fn has(row: &Row, ((left, one), (right, other)): &(Choice, Choice)) -> bool {
    row[*left] == *one && row[*right] == *other
}

fn gain(row: &Row, open: &BTreeSet<(Choice, Choice)>) -> usize {
    open.iter().filter(|pair| has(row, pair)).count()
}

fn pick<T: Copy>(from: &BTreeSet<T>, random: &SeededRandom) -> Option<T> {
    let count = u64::try_from(from.len()).unwrap_or(u64::MAX);
    let position = random.next_u64().checked_rem(count)?;
    from.iter().nth(usize::try_from(position).unwrap_or(0)).copied()
}

/// Puts a list into an order that the random numbers choose.
pub fn shuffle<T>(list: &mut [T], random: &SeededRandom) {
    for last in (1..list.len()).rev() {
        let bound = u64::try_from(last).unwrap_or(u64::MAX) + 1;
        list.swap(last, usize::try_from(random.next_u64() % bound).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTORS: &[Factor] = &[
        Factor { name: "a", values: &["1", "2", "3", "4"] },
        Factor { name: "b", values: &["1", "2", "3"] },
        Factor { name: "c", values: &["on", "off"] },
        Factor { name: "d", values: &["on", "off"] },
    ];
    const EXCLUDED: &[Impossible] = &[Impossible { one: ("c", "off"), other: ("a", "2"), why: "test" }];

    #[test]
    fn every_possible_pair_is_covered_and_no_impossible_one_is_made() {
        let space = Space::new(FACTORS, EXCLUDED);
        for seed in 0..20 {
            let rows = space.cover(seed);
            let coverage = space.coverage(&rows);
            // 4 × 3 + 2 × (4 × 2) + 2 × (3 × 2) + 2 × 2.
            assert_eq!((coverage.pairs, coverage.impossible), (44, 1));
            assert!(coverage.is_complete(), "{coverage:?}");
            assert!(rows.len() >= 12 && rows.len() < 20, "{} rows", rows.len());
            assert_eq!(rows, space.cover(seed));
        }
    }

    #[test]
    fn a_missing_row_is_noticed() {
        let space = Space::new(FACTORS, EXCLUDED);
        let rows = space.cover(1);
        let lacking = (0..rows.len()).filter(|left_out| {
            let rest: Vec<Row> = rows
                .iter()
                .enumerate()
                .filter(|(position, _)| position != left_out)
                .map(|(_, row)| row.clone())
                .collect();
            !space.coverage(&rest).is_complete()
        });
        // Each row was taken for a pair that no row before it had; most are the only one to have some.
        assert!(lacking.count() > rows.len() / 2);
    }
}
