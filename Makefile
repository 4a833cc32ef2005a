# Thin callers; what they do is written in xtask/ and tools/. MINUTES, SEED and ROWS are passed on where they mean something.
.PHONY: demo test proof suites bench

demo:
	tools/demo.sh

test:
	cargo xtask test

bench:
	cargo build --release --quiet -p vlinder-cli -p vlinder-bench
	cargo run --release --quiet -p vlinder-bench -- $(ROWS)

proof:
	cargo run --release -p vlinder-testkit --features engine --bin proof

# pjdfstest and fsx on the mount, as root; SEEDS, OPERATIONS and ONLY are read by the script.
suites:
	tools/suites.sh
