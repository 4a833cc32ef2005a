use super::*;
use proptest::prelude::*;

const SECTOR: usize = 4096;

/// Text-like, all zero, and noise: the three ways an extent can go.
fn samples(length: usize) -> [Vec<u8>; 3] {
    let words = b"the quick brown fox jumps over a lazy dog and then some more of it 0123456789\n";
    let text = (0..length).map(|index| words[(index * index / 97 + index) % words.len()]).collect();
    let mut state = length as u64 + 1;
    let noise = (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    [text, vec![0; length], noise]
}

fn compressed(kind: Compression, level: i32, input: &[u8]) -> Vec<u8> {
    let mut output = vec![0xee];
    let roomy = input.len() * 2 + 1000;
    assert!(compress(kind, level, input, SECTOR, roomy, &mut output).unwrap());
    assert_eq!(output.remove(0), 0xee, "compressing appends");
    output
}

#[test]
fn every_kind_level_and_size_comes_back() {
    for kind in Compression::ALL {
        for level in kind.levels() {
            for length in [0, 1, 4095, 4096, 4097, 128 << 10] {
                for input in samples(length) {
                    let mut stream = compressed(kind, level, &input);
                    // Inline extents end with the stream, regular ones are padded.
                    for padded in [stream.len(), stream.len().next_multiple_of(SECTOR)] {
                        stream.resize(padded, 0);
                        let mut output = vec![1; length];
                        assert_eq!(
                            decompress(kind, &stream, &mut output, SECTOR),
                            Ok(length),
                            "{kind}:{level}"
                        );
                        assert!(output == input, "{kind}:{level} of {length}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_larger_output_ends_in_zeros_and_a_smaller_gets_the_head() {
    for kind in Compression::ALL {
        for input in samples(10_000) {
            let stream = compressed(kind, kind.default_level(), &input);
            let mut larger = vec![1; 12_288];
            assert_eq!(decompress(kind, &stream, &mut larger, SECTOR), Ok(10_000));
            assert!(larger[..10_000] == input && larger[10_000..].iter().all(|byte| *byte == 0));
            for length in [0, 1, 4096, 5000, 9999] {
                let mut smaller = vec![1; length];
                assert_eq!(decompress(kind, &stream, &mut smaller, SECTOR), Ok(length), "{kind} to {length}");
                assert!(smaller == input[..length], "{kind} to {length}");
            }
        }
    }
}

#[test]
fn a_limit_holds_to_the_byte_and_excess_leaves_output_alone() {
    for kind in Compression::ALL {
        for input in samples(20_000) {
            let exact = compressed(kind, kind.default_level(), &input);
            for (limit, fits) in [(exact.len(), true), (exact.len() - 1, false), (0, false)] {
                let mut output = vec![9, 9];
                let worth_it =
                    compress(kind, kind.default_level(), &input, SECTOR, limit, &mut output).unwrap();
                assert_eq!(worth_it, fits, "{kind} in {limit}");
                assert_eq!(output.len(), if fits { 2 + exact.len() } else { 2 });
                assert!(output[..2] == [9, 9] && (!fits || output[2..] == exact));
            }
        }
    }
}

#[test]
fn an_extent_is_worth_it_from_one_saved_sector_on() {
    assert_eq!(extent_limit_bytes(131_072, 4096), 126_976);
    assert_eq!(extent_limit_bytes(4097, 4096), 4096);
    assert_eq!(extent_limit_bytes(4096, 4096), 0);
    assert_eq!(extent_limit_bytes(0, 4096), 0);
}

#[test]
fn levels_that_are_not_there_are_refused() {
    for (kind, level) in [(Compression::Zlib, 0), (Compression::Zlib, 10), (Compression::Zstd, 16)] {
        let error = compress(kind, level, b"x", SECTOR, 100, &mut Vec::new()).unwrap_err();
        assert_eq!(error, CodecError::Level { compression: kind, level });
    }
    let error = CodecError::Level { compression: Compression::Zlib, level: 10 };
    assert_eq!(error.to_string(), "zlib has no level 10; take one of 1 to 9");
}

#[test]
fn numbers_and_names_are_each_others_inverse() {
    for number in 0..=u8::MAX {
        let kind = Compression::from_disk(number);
        assert_eq!(kind.is_some(), (1..=3).contains(&number));
        assert!(kind.is_none_or(|kind| kind.to_disk() == number));
        assert!(kind.is_none_or(|kind| Compression::from_name(kind.name()) == Some(kind)));
    }
}

#[test]
fn every_truncation_is_an_error_unless_all_data_came_before_it() {
    for kind in Compression::ALL {
        let [input, ..] = samples(9000);
        let stream = compressed(kind, kind.default_level(), &input);
        for length in 0..stream.len() {
            let mut output = vec![1; 9000];
            let result = decompress(kind, &stream[..length], &mut output, SECTOR);
            // Linux too stops where it has what it needs, before zlib's own checksum.
            let whole = kind == Compression::Zlib && length + 8 > stream.len() && output == input;
            assert!(result.is_err() || whole, "{kind} cut to {length} of {}", stream.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutated_streams_give_an_error_or_some_bytes_but_no_panic(
        kind in prop::sample::select(&Compression::ALL[..]),
        length in 0..20_000_usize,
        room in 0..20_000_usize,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let [input, ..] = samples(length);
        let mut stream = compressed(kind, kind.default_level(), &input);
        for (place, value) in flips {
            let place = place.index(stream.len());
            stream[place] = value;
        }
        let mut output = vec![1; room];
        if let Ok(decoded) = decompress(kind, &stream, &mut output, SECTOR) {
            prop_assert!(decoded <= room);
        }
        // The workspace is fit for the next stream.
        let stream = compressed(kind, kind.default_level(), &input);
        let mut output = vec![1; length];
        prop_assert_eq!(decompress(kind, &stream, &mut output, SECTOR), Ok(length));
        prop_assert_eq!(output, input);
    }

    #[test]
    fn random_bytes_never_panic(
        kind in prop::sample::select(&Compression::ALL[..]),
        stream in proptest::collection::vec(any::<u8>(), 0..600),
        room in 0..9000_usize,
    ) {
        let mut output = vec![1; room];
        let _ = decompress(kind, &stream, &mut output, SECTOR);
    }
}
