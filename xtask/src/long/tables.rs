//! The tables of the long runs: each job is a few cross products, and a run is one row of them with a seed.

use crate::workspace;

use super::scrambled::scrambled;

/// Corpus images, from the root of the repository.
const CORPUS: &str = "../shared/corpus/full";
/// What stands in an argument for the directory of the corpus.
const CORPUS_MARK: &str = "CORPUS";

/// Rows of arguments: one word group out of each dimension, joined. A number written `LOW..HIGH` is drawn
/// from the seed of the run.
pub struct Product {
    dimensions: &'static [&'static [&'static str]],
    /// How many seeds each row has: those that follow the session's.
    seeds: u64,
}

/// A program that makes one run. It takes `--seed` and `--vlinder`, prints a line of JSON with the run's
/// verdict last, and ends with 0 if the run passed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tool {
    /// Where it lies, from the root of the repository.
    pub program: &'static str,
    /// The directory with the tests of what judges its runs, likewise.
    pub tests: Option<&'static str>,
    /// Commands that each of its runs needs. What single runs need it says itself, by the verdict "skip".
    pub needs: &'static [&'static str],
}

const FULL: &Tool = &Tool {
    program: "tools/full/run.py",
    tests: Some("tools/full/tests"),
    needs: &["btrfs", "python3", "zstd"],
};
const PROGRAMS: &Tool = &Tool {
    program: "tools/programs/run.py",
    tests: Some("tools/programs/tests"),
    needs: &["btrfs", "python3"],
};
const MEMORY: &Tool = &Tool { program: "tools/memory/run.py", tests: None, needs: &["btrfs", "python3"] };
const UNMOUNT: &Tool = &Tool {
    program: "tools/unmount/table.py",
    tests: None,
    needs: &["btrfs", "python3", "fusermount3", "unshare"],
};

const HOSTILE: &Tool = &Tool { program: "tools/hostile/run.py", tests: None, needs: &["cargo", "python3"] };

const STRANGERS: &Tool = &Tool {
    program: "tools/strangers/run.py",
    tests: None,
    needs: &["python3", "fusermount3", "setpriv", "unshare"],
};
const STREAMS: &Tool =
    &Tool { program: "tools/streams/pairs.py", tests: None, needs: &["btrfs", "mkfs.btrfs", "python3"] };
const SNAPSHOTS: &Tool =
    &Tool { program: "tools/snapshots/run.py", tests: None, needs: &["btrfs", "mkfs.btrfs", "python3"] };
const SIZES: &Tool =
    &Tool { program: "tools/sizes/run.py", tests: None, needs: &["btrfs", "mkfs.erofs", "python3"] };
const SETID: &Tool =
    &Tool { program: "tools/setid/table.py", tests: None, needs: &["mkfs.btrfs", "python3"] };

/// A job's name, its tool, its whole matrix, and its rows in the job that is a slice of several. Each row of
/// the slice ends within a minute, so that a step of few minutes is not held up by the run that is last; a
/// job whose runs take longer has none there.
pub struct Job {
    pub name: &'static str,
    pub tool: &'static Tool,
    matrix: &'static [Product],
    slice: Option<Product>,
}

/// One run: the tool, its arguments without `--seed`, and the seed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Planned {
    pub tool: &'static Tool,
    pub row: String,
    pub seed: u64,
}

pub const JOBS: &[Job] = &[
    Job {
        name: "full-fill",
        tool: FULL,
        matrix: &[
            Product {
                dimensions: &[
                    &["fill"],
                    &["--size 128M", "--size 256M", "--size 1G"],
                    &[
                        "--bytes 1400",
                        "--bytes 1450",
                        "--bytes 1500",
                        "--bytes 1550",
                        "--bytes 1600",
                        "--bytes 1650",
                        "--bytes 1700",
                        "--bytes 1750",
                        "--bytes 1800",
                        "--bytes 1850",
                        "--bytes 1900",
                        "--bytes 1950",
                        "--bytes 2000",
                        "--bytes 2048",
                    ],
                ],
                seeds: 1,
            },
            Product {
                dimensions: &[
                    &["fill"],
                    &[
                        "--size 256M --bytes 1800 --opts commit=5",
                        "--size 256M --bytes 1800 --opts writeback=off",
                        "--size 128M --bytes 4096",
                        "--size 512M --bytes 65536",
                    ],
                ],
                seeds: 1,
            },
        ],
        slice: Some(Product {
            dimensions: &[
                &["fill --size 128M"],
                &["--bytes 1400..2049"],
                &["--empty running", "--empty remount"],
            ],
            seeds: 1,
        }),
    },
    Job {
        name: "full-one-process",
        tool: FULL,
        matrix: &[
            Product {
                dimensions: &[
                    &["one-process --refusals 5000"],
                    &["--size 140M", "--size 200M", "--size 1G"],
                    &[
                        "",
                        "--opts compress=zstd",
                        "--opts compress-force=lzo,cache=32m,dirty=8m",
                        "--opts writeback=off",
                    ],
                ],
                seeds: 20,
            },
            Product { dimensions: &[&["one-process --size 200M --refusals 10000"]], seeds: 1 },
        ],
        slice: Some(Product {
            dimensions: &[
                &["one-process --size 140M --refusals 2000"],
                &["", "--opts compress=zstd", "--opts writeback=off"],
                &["--empty running"],
            ],
            seeds: 1,
        }),
    },
    Job {
        name: "full-snapshots",
        tool: FULL,
        matrix: &[
            Product {
                dimensions: &[
                    &[
                        "remove-then-snapshot --bytes 600 --remove 50..3000 --extents 0..28672",
                        "snapshot-then-fill --half 500..12000 --extents 0..14000",
                    ],
                    &["--size 200M", "--size 256M", "--size 512M"],
                ],
                seeds: 5,
            },
            Product {
                dimensions: &[&[
                    "remove-then-snapshot --size 256M",
                    "remove-then-snapshot --size 256M --remove 50 --extents 10000",
                    "snapshot-then-fill --size 200M --half 3000 --extents 10000",
                    "snapshot-then-fill --size 200M",
                    "snapshot-then-fill --size 512M --half 20000",
                ]],
                seeds: 1,
            },
        ],
        slice: Some(Product {
            dimensions: &[
                &[
                    "remove-then-snapshot --remove 50..3000 --extents 0..12000",
                    "snapshot-then-fill --half 500..6000 --extents 0..10000",
                ],
                &["--size 200M --empty running"],
            ],
            seeds: 1,
        }),
    },
    Job {
        name: "full-scatter",
        tool: FULL,
        matrix: &[
            Product {
                dimensions: &[&["scatter --size 200M --extents 20000 --leave 1000 --touch 5"]],
                seeds: 5,
            },
            Product {
                dimensions: &[&[
                    "scatter --size 512M",
                    "scatter --size 512M --leave 2000",
                    "scatter --size 256M --extents 28000 --touch 100",
                ]],
                seeds: 1,
            },
        ],
        slice: Some(Product {
            dimensions: &[&["scatter --size 200M --extents 20000 --leave 1000 --touch 5 --empty running"]],
            seeds: 1,
        }),
    },
    Job {
        name: "full-stress",
        tool: FULL,
        matrix: &[
            Product {
                dimensions: &[
                    &["stress --size 200M --seconds 60 --renew 4"],
                    &[
                        "--profile all",
                        "--profile extents",
                        "--profile names",
                        "--profile meta",
                        "--profile dbmix",
                        "--profile unmapped",
                    ],
                ],
                seeds: 10,
            },
            Product {
                dimensions: &[
                    &["stress"],
                    &[
                        "--size 200M --seconds 75 --renew 3 --profile meta",
                        "--size 200M --seconds 45 --renew 4 --profile meta --opts writeback=off",
                        "--size 256M --seconds 60 --renew 10 --profile dbmix --opts writeback=off",
                        "--size 200M --seconds 60 --profile extents --opts compress=zstd",
                        "--size 200M --seconds 60 --renew 0 --profile names",
                    ],
                ],
                seeds: 1,
            },
        ],
        slice: Some(Product {
            dimensions: &[
                &["stress --size 140M --seconds 15 --renew 4 --empty running"],
                &["--profile all", "--profile meta", "--profile dbmix"],
            ],
            seeds: 1,
        }),
    },
    Job { name: "full-images", tool: FULL, matrix: &[IMAGES], slice: Some(IMAGES) },
    Job {
        name: "programs",
        tool: PROGRAMS,
        matrix: &[
            Product {
                dimensions: &[
                    &[
                        "postgresql --rounds 5",
                        "mariadb --rounds 5",
                        "redis --rounds 5",
                        "sqlite --rounds 8",
                        "builds --rounds 4",
                        "fio --rounds 4",
                    ],
                    CACHE_MODES,
                ],
                seeds: 3,
            },
            Product {
                dimensions: &[&["debootstrap --rounds 3", "podman --rounds 3"], CACHE_MODES],
                seeds: 1,
            },
            Product { dimensions: &[&["builds --rounds 1 --builds 200"]], seeds: 1 },
        ],
        slice: None,
    },
    Job {
        name: "memory",
        tool: MEMORY,
        matrix: &[Product {
            dimensions: &[
                &["--seconds 600"],
                &["--options cache=32M,dirty=8M", "--options cache=32M,dirty=8M,writeback=off"],
            ],
            seeds: 1,
        }],
        slice: None,
    },
    Job {
        name: "unmount",
        tool: UNMOUNT,
        matrix: &[Product { dimensions: &[&["--repeat 20"]], seeds: 1 }],
        slice: None,
    },
    Job {
        name: "strangers",
        tool: STRANGERS,
        matrix: &[Product {
            dimensions: &[&[
                "--case R1",
                "--case R2",
                "--case R3",
                "--case R4",
                "--case R5",
                "--case R6",
                "--case R7",
                "--case R8",
            ]],
            seeds: 3,
        }],
        slice: None,
    },
    Job {
        name: "setid",
        tool: SETID,
        matrix: &[Product { dimensions: &[&["--share 1"]], seeds: 1 }],
        slice: None,
    },
    Job {
        name: "sizes",
        tool: SIZES,
        matrix: &[Product { dimensions: &[&["--limit 0.95"]], seeds: 1 }],
        slice: None,
    },
    Job {
        name: "streams",
        tool: STREAMS,
        matrix: &[Product { dimensions: &[&["--pairs 2000 --least 20"]], seeds: 1 }],
        slice: None,
    },
    Job {
        name: "snapshots",
        tool: SNAPSHOTS,
        matrix: &[Product { dimensions: &[&["--size 6144", "--size 3072 --full"]], seeds: 1 }],
        slice: None,
    },
    Job {
        name: "hostile",
        tool: HOSTILE,
        matrix: &[Product {
            dimensions: &[&[
                "--part 1/8",
                "--part 2/8",
                "--part 3/8",
                "--part 4/8",
                "--part 5/8",
                "--part 6/8",
                "--part 7/8",
                "--part 8/8",
            ]],
            seeds: 1,
        }],
        slice: None,
    },
];

/// The kernel holds back what is written, or it does not.
const CACHE_MODES: &[&str] = &["", "--options writeback=off"];

const IMAGES: Product = Product {
    dimensions: &[&["image --image CORPUS/forever.img.zst", "image --image CORPUS/c-commit-fails.img.zst"]],
    seeds: 1,
};

impl Product {
    /// Every row for a tool, with the arguments that a seed draws.
    fn runs(&self, tool: &'static Tool, first_seed: u64) -> Vec<Planned> {
        let rows = self.dimensions.iter().fold(vec![String::new()], |rows, dimension| {
            let longer = |row: &String| dimension.iter().map(|&word| joined(row, word)).collect::<Vec<_>>();
            rows.iter().flat_map(longer).collect()
        });
        let mut runs = Vec::new();
        for offset in 0..self.seeds {
            let seed = first_seed.wrapping_add(offset);
            runs.extend(rows.iter().map(|row| Planned { tool, row: drawn(row, seed), seed }));
        }
        runs
    }

    /// How far the seed of the next turn is from this one's, so that no run comes twice.
    fn seeds(&self) -> u64 {
        self.seeds
    }
}

impl Job {
    /// All runs of the whole matrix, from a seed on.
    pub fn whole(&self, first_seed: u64) -> Vec<Planned> {
        self.matrix.iter().flat_map(|product| product.runs(self.tool, first_seed)).collect()
    }

    /// Whether the job that is a slice of several has runs of this one.
    pub fn is_sliced(&self) -> bool {
        self.slice.is_some()
    }

    /// The runs of the slice, from a seed on.
    pub fn slice(&self, first_seed: u64) -> Vec<Planned> {
        self.slice.iter().flat_map(|product| product.runs(self.tool, first_seed)).collect()
    }

    /// The most seeds that a row has in one turn over the matrix.
    pub fn most_seeds(&self) -> u64 {
        self.matrix.iter().map(Product::seeds).max().unwrap_or(1)
    }
}

fn joined(row: &str, words: &str) -> String {
    let separator = if row.is_empty() || words.is_empty() { "" } else { " " };
    format!("{row}{separator}{words}")
}

/// The row with a number in place of each range.
fn drawn(row: &str, seed: u64) -> String {
    let mut state = row.bytes().fold(scrambled(seed), |state, byte| scrambled(state ^ u64::from(byte)));
    let words = row.split(' ').map(|word| {
        let Some((low, high)) = range(word) else { return word.to_owned() };
        state = scrambled(state);
        (low + state % (high - low)).to_string()
    });
    words.collect::<Vec<_>>().join(" ")
}

fn range(word: &str) -> Option<(u64, u64)> {
    let (low, high) = word.split_once("..")?;
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    (low < high).then_some((low, high))
}

/// The word with the directory of the corpus in place of its mark.
pub fn with_corpus(word: &str) -> String {
    let Some(image) = word.strip_prefix(CORPUS_MARK) else { return word.to_owned() };
    format!("{}{image}", workspace::root().join(CORPUS).display())
}

/// The image that a row wants and that isn't there.
pub fn missing_image(row: &str) -> Option<String> {
    let image = row.split(' ').find(|word| word.starts_with(CORPUS_MARK)).map(with_corpus)?;
    (!std::path::Path::new(&image).exists()).then_some(image)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn job(name: &str) -> &'static Job {
        JOBS.iter().find(|job| job.name == name).unwrap()
    }

    #[test]
    fn each_matrix_has_its_whole_cross_product() {
        let counts: Vec<usize> = JOBS.iter().map(|job| job.whole(1).len()).collect();
        let full_disks = [3 * 14 + 4, 20 * 4 * 3 + 1, 2 * 3 * 5 + 5, 5 + 3, 6 * 10 + 5, 2];
        assert_eq!(counts, [&full_disks[..], &[6 * 2 * 3 + 2 * 2 + 1, 2, 1, 8 * 3, 1, 1, 1, 2, 8]].concat());
        let row = "one-process --refusals 5000 --size 1G --opts writeback=off".to_owned();
        assert!(job("full-one-process").whole(1).contains(&Planned { tool: FULL, row, seed: 20 }));
    }

    #[test]
    fn no_run_comes_twice_in_several_turns() {
        let most_seeds = JOBS.iter().map(Job::most_seeds).max().unwrap();
        for job in JOBS {
            for runs in [Job::whole, Job::slice] {
                // As the turns follow one another.
                let runs: Vec<Planned> = (0..5).flat_map(|turn| runs(job, 7 + turn * most_seeds)).collect();
                let different: BTreeSet<&Planned> = runs.iter().collect();
                assert_eq!(different.len(), runs.len(), "{}", job.name);
            }
        }
    }

    #[test]
    fn the_seeds_of_a_product_follow_the_first_and_each_draws_anew() {
        let product = Product { dimensions: &[&["a 0..1000", "b"], &["", "c 0..1000"]], seeds: 3 };
        let runs = product.runs(FULL, u64::MAX);
        let seeds: Vec<u64> = runs.iter().map(|run| run.seed).collect();
        assert_eq!(seeds, [[u64::MAX; 4], [0; 4], [1; 4]].concat());
        let words = |run: &Planned| run.row.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let numbers: Vec<String> =
            runs.iter().flat_map(words).filter(|word| word.parse::<u64>().is_ok()).collect();
        let different: BTreeSet<&String> = numbers.iter().collect();
        assert_eq!((numbers.len(), different.len()), (12, 12), "{numbers:?}");
        assert_eq!(product.runs(FULL, u64::MAX), runs);
    }

    #[test]
    fn numbers_are_drawn_from_all_of_their_range_and_nothing_else() {
        for (low, high) in [(10, 12), (0, 1), (7, 17)] {
            let row = format!("--half {low}..{high} --name x..y");
            let drawn: BTreeSet<String> = (0..500).map(|seed| drawn(&row, seed)).collect();
            let expected = (low..high).map(|number| format!("--half {number} --name x..y"));
            assert_eq!(drawn, expected.collect::<BTreeSet<_>>());
        }
        let many: BTreeSet<String> = (0..200).map(|seed| drawn("--remove 50..3000", seed)).collect();
        assert!(many.len() > 180, "{}", many.len());
    }

    #[test]
    fn every_tool_and_its_tests_are_there() {
        for tool in JOBS.iter().map(|job| job.tool) {
            let path = |path: &str| workspace::root().join(path);
            assert!(path(tool.program).is_file(), "{}", tool.program);
            let Some(tests) = tool.tests else { continue };
            let mut files = std::fs::read_dir(path(tests)).unwrap().flatten();
            assert!(files.any(|file| file.file_name().to_string_lossy().starts_with("test_")), "{tests}");
        }
    }

    #[test]
    fn rows_are_joined_with_one_space_and_all_are_drawn() {
        let joins = [joined("", ""), joined("a", ""), joined("", "b"), joined("a", "b c")];
        assert_eq!(joins, ["", "a", "b", "a b c"]);
        for run in JOBS.iter().flat_map(|job| [job.whole(1), job.slice(1)].concat()) {
            assert!(run.row.split(' ').all(|word| !word.is_empty()), "{:?}", run.row);
            assert!(run.row.split(' ').all(|word| range(word).is_none()), "{:?}", run.row);
        }
    }
}
