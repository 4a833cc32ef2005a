use super::*;
use proptest::prelude::*;

fn decode(stream: &[u8], room: usize) -> Result<Vec<u8>, decompressor::Fault> {
    let mut output = vec![0xa5; room];
    let length = decompressor::decompress(stream, &mut output)?;
    output.truncate(length);
    Ok(output)
}

fn encode(input: &[u8]) -> Vec<u8> {
    let mut output = vec![0; worst_segment_bytes(input.len())];
    let length = compressor::compress(input, &mut Table::default(), &mut output);
    output.truncate(length);
    output
}

/// Bytes with matches at every distance and of every length.
fn compressible() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..3000_usize).prop_map(|(byte, count)| vec![byte; count]),
        proptest::collection::vec(any::<u8>(), 1..300),
        (proptest::collection::vec(0..4_u8, 2..12), 1..60_usize).prop_map(|(part, count)| part.repeat(count)),
    ];
    (proptest::collection::vec(piece, 0..40), any::<u64>()).prop_map(|(pieces, order)| {
        let mut bytes = Vec::new();
        for turn in 0..pieces.len() * 2 {
            let chosen = (order.rotate_left(turn as u32 * 7) % pieces.len() as u64) as usize;
            bytes.extend_from_slice(&pieces[chosen]);
        }
        bytes.truncate(1 << 16);
        bytes
    })
}

#[test]
fn the_smallest_streams_are_the_described_ones() {
    assert_eq!(encode(b""), [0x11, 0, 0]);
    assert_eq!(encode(b"ab"), [19, b'a', b'b', 0x11, 0, 0]);
    assert_eq!(decode(&[0x11, 0, 0], 0), Ok(vec![]));
    assert_eq!(decode(&[21, 1, 2, 3, 4, 0x11, 0, 0], 4), Ok(vec![1, 2, 3, 4]));
}

/// One stream for each form of instruction, composed by hand from the description.
#[test]
fn each_instruction_does_what_the_description_says() {
    let end = [0x11, 0, 0];
    // Three literals, then (state 3) two bytes from distance 3 and one literal, then (state 1) two from
    // distance 1.
    let near = [&[20, 1, 2, 3, 0b0000_1001, 0, 9, 0b0000_0000, 0][..], &end].concat();
    assert_eq!(decode(&near, 64), Ok(vec![1, 2, 3, 1, 2, 9, 9, 9]));
    // A long run, a match of 64 and more in one byte, of length 8 at distance 4: it repeats itself.
    let repeat = [&[21, 1, 2, 3, 4, 0b1110_1100, 0][..], &end].concat();
    assert_eq!(decode(&repeat, 64), Ok([1, 2, 3, 4].repeat(3)));
    // Length 3 at distance 2049 directly after a run: 238 + 1811 literals before it.
    let literals: Vec<u8> = (0..2049_u32).map(|index| (index % 251) as u8).collect();
    let mut far = vec![0, 0, 0, 0, 0, 0, 0, 0, (2049 - 18 - 7 * 255) as u8];
    far.extend_from_slice(&literals);
    far.extend_from_slice(&[0b0000_0000, 0]);
    far.extend_from_slice(&end);
    let decoded = decode(&far, 4096).unwrap();
    assert_eq!((decoded.len(), &decoded[2049..]), (2052, &literals[..3]));
    // A run of one byte, of length 2 + 31 + 255 + 5, by the form for up to 16 KiB.
    let long = [&[18, 7, 0b0010_0000, 0, 5, 0, 0][..], &end].concat();
    assert_eq!(decode(&long, 512), Ok(vec![7; 1 + 2 + 31 + 255 + 5]));
}

#[test]
fn damaged_streams_say_what_and_where() {
    let fault = |offset, damage| Err(decompressor::Fault { offset, damage });
    assert_eq!(decode(&[], 9), fault(0, Damage::Truncated));
    assert_eq!(decode(&[18, 7], 9), fault(2, Damage::Truncated));
    assert_eq!(decode(&[18, 7, 64 + 4, 0], 9), fault(4, Damage::Distance));
    assert_eq!(decode(&[18, 7, 0x11, 0, 0, 0], 9), fault(5, Damage::BehindEnd));
    assert_eq!(decode(&[18, 7, 0x11, 0, 0], 0), fault(1, Damage::SegmentOutput));
    assert_eq!(decode(&[18, 7, 32, 0, 0, 1, 0, 0], 9), fault(8, Damage::SegmentOutput));
    assert_eq!(decode(&[0; 1000], 9), fault(1000, Damage::Truncated));
}

#[test]
fn no_segment_header_crosses_a_sector_of_the_compressed_bytes() {
    // Segments of all lengths, so that each remainder of a sector occurs.
    let mut random = 1_u64;
    let mut remainders = [false; LENGTH_BYTES];
    for round in 0..3000 {
        let mut input = vec![0_u8; 32 * 4096];
        for sector in input.chunks_mut(4096) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noisy = (random >> 33) as usize % 4096;
            for byte in &mut sector[..noisy] {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
                *byte = (random >> 56) as u8;
            }
        }
        let mut stream = Vec::new();
        assert!(LzoWorkspace::default().compress(&input, 4096, 200 << 10, &mut stream));
        let (mut offset, mut sectors) = (LENGTH_BYTES, 0);
        while offset < stream.len() {
            let left = 4096 - offset % 4096;
            if left < LENGTH_BYTES {
                remainders[left] = true;
                assert!(stream[offset..offset + left].iter().all(|byte| *byte == 0));
                offset += left;
            }
            offset += LENGTH_BYTES + read_length(&stream, offset).unwrap();
            sectors += 1;
        }
        assert_eq!((offset, sectors), (stream.len(), 32));
        assert_eq!(read_length(&stream, 0), Ok(stream.len()));
        stream.resize(stream.len().next_multiple_of(4096), 0);
        let mut output = vec![1; input.len()];
        assert_eq!(LzoWorkspace::default().decompress(&stream, &mut output, 4096), Ok(input.len()));
        assert_eq!(output, input);
        if remainders[1..].iter().all(|seen| *seen) {
            return;
        }
    }
    panic!("not every remainder came: {remainders:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn our_streams_decode_here_and_in_another_decoder(input in compressible()) {
        let stream = encode(&input);
        prop_assert_eq!(decode(&stream, input.len()).unwrap(), &input[..]);
        let mut output = vec![0; input.len()];
        prop_assert_eq!(lzokay::decompress::decompress(&stream, &mut output), Ok(input.len()));
        prop_assert_eq!(output, input);
    }

    #[test]
    fn streams_of_another_encoder_decode_here(input in compressible()) {
        // It opens an empty stream with a 17, which announces a version that Btrfs never writes.
        prop_assume!(!input.is_empty());
        let stream = lzokay::compress::compress(&input).unwrap();
        prop_assert_eq!(decode(&stream, input.len()).unwrap(), &input[..]);
        prop_assert_eq!(decode(&stream, input.len() + 100).unwrap(), input);
    }

    #[test]
    fn mutated_streams_never_panic_and_agree_with_another_decoder(
        input in compressible(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        room in 0..70_000_usize,
    ) {
        let mut stream = encode(&input);
        for (place, value) in flips {
            let place = place.index(stream.len());
            stream[place] = value;
        }
        let ours = decode(&stream, room);
        let mut output = vec![0; room];
        // The other decoder knows versions of the format that start with 17, which Btrfs never writes.
        if stream[0] != 17 {
            let theirs = lzokay::decompress::decompress(&stream, &mut output);
            if let (Ok(ours), Ok(length)) = (&ours, theirs) {
                prop_assert_eq!(&ours[..], &output[..length]);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(stream in proptest::collection::vec(any::<u8>(), 0..2000), room in 0..9000_usize) {
        let _ = decode(&stream, room);
        let mut output = vec![0; room];
        let _ = LzoWorkspace::default().decompress(&stream, &mut output, 4096);
    }
}
