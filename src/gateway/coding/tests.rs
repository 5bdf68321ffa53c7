//! Tests of `coding`.

use std::io::Write;

use flate2::{Compression, write::DeflateEncoder, write::GzEncoder, write::ZlibEncoder};
use http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// Every coding that weir decodes.
pub(in crate::gateway) const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

/// `plain` in this coding.
pub(in crate::gateway) fn packed(coding: Coding, plain: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Brotli => {
            let mut out = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 3, 22);
            encoder.write_all(plain).unwrap();
            drop(encoder);
            out
        }
        Coding::Zstd => zstd::encode_all(plain, 3).unwrap(),
    }
}

fn bare_deflate(plain: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// What comes out, whether the stream ended, and the bytes left over behind it.
fn unpack(coding: Coding, packed: &[u8], piece: usize, room: usize) -> Result<(Vec<u8>, bool, usize), CodingBroken> {
    let mut decoder = Decoder::new(coding)?;
    let (mut out, mut scratch, mut read) = (Vec::new(), vec![0; room], 0);
    for mut part in packed.chunks(piece) {
        loop {
            let step = decoder.step(part, &mut scratch)?;
            read += step.read;
            part = &part[step.read..];
            out.extend_from_slice(&scratch[..step.written]);
            if step.read == 0 && step.written == 0 {
                break;
            }
        }
    }
    Ok((out, decoder.has_ended(), packed.len() - read))
}

#[test]
fn the_header_names_one_coding_or_none_or_something_else() {
    let said = |lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::CONTENT_ENCODING, HeaderValue::from_str(line).unwrap());
        }
        of_request(&headers)
    };
    assert_eq!(said(&[]), MessageCoding::No);
    assert_eq!(said(&["identity", " , "]), MessageCoding::No);
    assert_eq!(said(&["GZip"]), MessageCoding::By(Coding::Gzip));
    assert_eq!(said(&["x-gzip"]), MessageCoding::By(Coding::Gzip));
    assert_eq!(said(&["identity, br"]), MessageCoding::By(Coding::Brotli));
    for coding in ALL {
        assert_eq!(said(&[coding.as_str()]), MessageCoding::By(coding));
    }
    assert_eq!(said(&["compress"]), MessageCoding::Otherwise("compress".to_owned()));
    assert_eq!(
        said(&["gzip", "Zstd"]),
        MessageCoding::Otherwise("gzip, zstd".to_owned())
    );
}

#[test]
fn a_name_that_is_no_coding_does_not_count_in_an_answer() {
    let said = |line: &str| {
        let mut headers = HeaderMap::new();
        headers.append(header::CONTENT_ENCODING, HeaderValue::from_str(line).unwrap());
        of_answer(&headers)
    };
    for line in ["none", "utf-8", "UTF-8", "identity, none", "binary", ""] {
        assert_eq!(said(line), MessageCoding::No, "{line}");
    }
    assert_eq!(said("none, gzip"), MessageCoding::By(Coding::Gzip));
    assert_eq!(said("Compress"), MessageCoding::Otherwise("compress".to_owned()));
    assert_eq!(said("gzip, gzip"), MessageCoding::Otherwise("gzip, gzip".to_owned()));
}

#[test]
fn deflate_is_taken_with_and_without_its_wrapper() {
    let plain = b"{\"model\":\"sample\"}".repeat(50);
    assert_eq!(
        unpack(Coding::Deflate, &bare_deflate(&plain), 7, 64),
        Ok((plain.clone(), true, 0))
    );
    assert_eq!(
        unpack(Coding::Deflate, &packed(Coding::Deflate, &plain), 1, 64),
        Ok((plain, true, 0))
    );
}

#[test]
fn a_stream_of_another_coding_is_refused() {
    for coding in ALL {
        for other in ALL.into_iter().filter(|other| *other != coding) {
            let bytes = packed(other, &b"0123456789".repeat(30));
            let result = unpack(coding, &bytes, 16, 64);
            assert!(
                !matches!(result, Ok((_, true, 0))),
                "{other:?} read as {coding:?}: {result:?}"
            );
        }
    }
    let skippable = [0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 0];
    assert_eq!(unpack(Coding::Zstd, &skippable, 3, 64), Err(CodingBroken));
}

#[test]
fn a_zstd_window_beyond_8_mib_is_refused() {
    for (log, fits) in [(23, true), (24, false)] {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder
            .set_parameter(zstd::zstd_safe::CParameter::WindowLog(log))
            .unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(&vec![7; 1 << 20]).unwrap();
        let bytes = encoder.finish().unwrap();
        assert_eq!(unpack(Coding::Zstd, &bytes, 4096, 4096).is_ok(), fits, "{log}");
    }
}

#[test]
fn one_step_never_writes_more_than_its_room() {
    let plain = vec![b'a'; 4 << 20];
    for coding in ALL {
        let bytes = packed(coding, &plain);
        let mut decoder = Decoder::new(coding).unwrap();
        let mut room = [0; 100];
        let step = decoder.step(&bytes, &mut room).unwrap();
        assert!(step.written <= 100 && !decoder.has_ended(), "{coding:?}");
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_bytes_and_the_end_is_found(
        plain in prop::collection::vec(prop::sample::select(b"ab{}\n".to_vec()), 0..3000),
        pick in 0_usize..4, piece in 1_usize..500, room in 1_usize..500, behind in 0_usize..9,
    ) {
        let mut bytes = packed(ALL[pick], &plain);
        bytes.resize(bytes.len() + behind, b'x');
        prop_assert_eq!(unpack(ALL[pick], &bytes, piece, room), Ok((plain, true, behind)));
    }

    #[test]
    fn a_cut_stream_has_not_ended(
        plain in prop::collection::vec(any::<u8>(), 0..300), pick in 0_usize..4, cut in 0_usize..1000,
    ) {
        let bytes = packed(ALL[pick], &plain);
        let cut = cut % bytes.len();
        if let Ok((_, ended, _)) = unpack(ALL[pick], &bytes[..cut], 50, 50) {
            prop_assert!(!ended);
        }
    }

    #[test]
    fn damaged_streams_never_panic(
        plain in prop::collection::vec(prop::sample::select(b"ab{}\n".to_vec()), 0..2000),
        pick in 0_usize..4, at: prop::sample::Index, byte: u8, piece in 1_usize..500,
    ) {
        let mut bytes = packed(ALL[pick], &plain);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = unpack(ALL[pick], &bytes, piece, 4096);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), pick in 0_usize..4, piece in 1_usize..50) {
        // Whatever it is, it may not become much: the test would not end otherwise.
        let _ = unpack(ALL[pick], &bytes, piece, 4096);
    }
}
