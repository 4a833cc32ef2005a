# Thin callers; what they do is written in xtask/ and tools/. MINUTES, SEED, ROWS, JOB and what the program at
# the head of its source lists are passed on where they mean something.
.PHONY: demo test report proof judges matrix fuzz coverage suites bench fio-engine long

demo:
	tools/demo.sh

test:
	cargo xtask test

# With BEFORE=COMMIT the rows are compared with that commit; docs/benchmarks/workloads.md says how.
bench:
	cargo build --release --quiet -p vlinder-cli -p vlinder-bench
	cargo run --release --quiet -p vlinder-bench -- $(ROWS)

# The pages and pictures of docs/benchmarks, of the rows that were run.
report:
	cargo run --release --quiet -p vlinder-bench -- --page

proof:
	cargo run --release -p vlinder-testkit --features engine --bin proof

# Small changes that both checkers are shown: SEED, COUNT, MINUTES, JOBS, ALL=1.
judges:
	cargo run --release -p vlinder-testkit --features engine --bin judges

matrix:
	cargo run --release -p vlinder-testkit --features engine --bin matrix

# Coverage-guided; MINUTES, TARGET, SEED and BTRFS_CHECK are read by the script.
fuzz:
	tools/fuzz.sh

# Which branches of `format` and `check` are taken; REPORT and INPUTS are read by the script.
coverage:
	tools/coverage.sh

# pjdfstest and fsx on the mount, as root; SEEDS, OPERATIONS and ONLY are read by the script.
suites:
	tools/suites.sh

# Long runs, as root: `make long JOB=full MINUTES=10 SEED=1`, `make long JOB=programs`; RESUME=1 leaves out what passed,
# LIST=1 only names the runs.
long:
	cargo xtask long $(JOB)

# An engine for fio that works on images through the library: tools/fio-engine.sh says what it needs.
fio-engine:
	tools/fio-engine.sh
