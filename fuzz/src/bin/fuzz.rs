//! What libFuzzer drives. `VLINDER_FUZZ_TARGET` names the target that all inputs are made for; without it an
//! input's first byte does.

#![no_main]

use vlinder_base::sync::OnceLock;
use vlinder_fuzz::target::{self, Target};

fn chosen() -> Option<&'static Target> {
    static CHOSEN: OnceLock<Option<&'static Target>> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("VLINDER_FUZZ_TARGET").ok()?;
        let found = target::by_name(&name);
        assert!(found.is_some(), "there is no target {name}; there are {:?}", target::names());
        found
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| -> libfuzzer_sys::Corpus {
    match chosen() {
        Some(target) if input.first() != Some(&target.number) => libfuzzer_sys::Corpus::Reject,
        _ if target::run(input) => libfuzzer_sys::Corpus::Keep,
        _ => libfuzzer_sys::Corpus::Reject,
    }
});

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, _seed: u32| {
    let Some(target) = chosen() else { return libfuzzer_sys::fuzzer_mutate(data, size, max_size) };
    // The target's byte stays: what is mutated lies behind it.
    data[0] = target.number;
    1 + libfuzzer_sys::fuzzer_mutate(&mut data[1..], size.saturating_sub(1), max_size - 1)
});
