//! Request bodies with a content coding: decoded, forwarded plain, and never more than a body may be. More bombs:
//! `hostile/bodies.rs`.

use std::time::{Duration, Instant};

use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::packed::{CODINGS, packed};
use crate::harness::provider::Welcome;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::{assert_refusal, assert_unauthorized};
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder};

/// `request` with its body in this coding.
fn coded(request: &Request, coding: &str) -> Request {
    let body = packed(coding, &request.body);
    request.clone().header("content-encoding", coding).body(&body)
}

/// A prompt that hardly compresses: base 36 digits of a simple generator.
fn noise(length: usize) -> String {
    let mut state = 1_u64;
    let digits = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from_digit(u32::try_from(state >> 33).unwrap() % 36, 36).unwrap()
    });
    digits.take(length).collect()
}

fn invalid(wire: Wire, reason: &'static str) -> &'static str {
    match wire {
        Wire::Messages => "invalid_request_error",
        Wire::Responses => reason,
        Wire::Gemini => "INVALID_ARGUMENT",
    }
}

#[test]
fn a_coded_body_reaches_the_provider_decoded_in_every_framing() {
    every_form_arrives(&RecordingProvider::least(), false);
}

#[test]
fn a_coded_body_is_sent_again_when_the_pooled_connection_is_stale() {
    let provider = RecordingProvider::start_with(None, |_| Welcome::ServeThenDie(1), |_, answer| answer.least());
    every_form_arrives(&provider, true);
}

/// Sends bodies of several sizes in every coding and framing; those that may meet a stale connection and are to, until
/// they have.
#[track_caller]
fn every_form_arrives(provider: &RecordingProvider, stale: bool) {
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    // Far below, around and far beyond what Pingora can replay by itself, also when compressed.
    for (wire, prompt) in [
        (Wire::Messages, "hi".to_owned()),
        (Wire::Responses, noise(65_000)),
        (Wire::Gemini, noise(1_000_000)),
    ] {
        let plain = wire.request(&key, &prompt);
        for coding in CODINGS {
            let request = coded(&plain, coding);
            // Without a length and beyond Pingora's buffer they are sent once, over a connection of their own.
            let stale_unsaid = stale && wire != Wire::Gemini;
            for upload in [Upload::Length, Upload::Chunked(7_000), Upload::Chunked(1 << 20)] {
                provider.until_stale(if upload == Upload::Length { stale } else { stale_unsaid }, || {
                    let what = format!("{wire:?} {coding} {upload:?}");
                    let before = provider.count();
                    let mut client = weir.connect();
                    client.write(&request.bytes(upload));
                    let answer = client.response_to("POST");
                    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                    let got = provider.last();
                    assert_eq!(provider.count(), before + 1, "{what}");
                    assert!(got.body == plain.body, "{what}: {} bytes arrived", got.body.len());
                    assert!(got.header("content-encoding").is_none(), "{what}");
                    assert_eq!(
                        got.header_values("content-length"),
                        [plain.body.len().to_string()],
                        "{what}"
                    );
                });
            }
            for (end, length) in [
                (EndStream::OnLastFrame, Length::Said),
                (EndStream::OnItsOwn, Length::Said),
                (EndStream::OnItsOwn, Length::Unsaid),
            ] {
                provider.until_stale(if length == Length::Said { stale } else { stale_unsaid }, || {
                    let what = format!("{wire:?} {coding} {end:?} {length:?}");
                    let answer = h2c::exchange(weir.gateway, &request, end, length);
                    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                    assert!(provider.last().body == plain.body, "{what}");
                });
            }
        }
    }
}

#[test]
fn identity_is_no_coding_and_another_one_is_400_that_names_the_four() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let plain = wire.request(&key, "hi").header("content-encoding", "identity");
        assert_eq!(weir.exchange(&plain).status, 200, "{wire:?}");
        for odd in ["compress", "gzip, br", "zstd, zstd", "dcb", "gzip;q=1"] {
            let request = wire.request(&key, "hi").header("content-encoding", odd);
            let answer = weir.exchange(&request);
            assert_refusal(wire, &answer, 400, invalid(wire, "body_encoding_unsupported"));
            assert!(
                answer.text().contains("gzip, deflate, br and zstd"),
                "{}",
                answer.text()
            );
            if wire == Wire::Messages {
                assert_eq!(
                    answer.json()["error"]["details"]["error_code"],
                    "request_body_encoding_unsupported"
                );
            }
        }
    }
    assert_eq!(provider.count(), 3);
}

#[test]
fn a_coded_body_that_is_broken_cut_or_followed_by_anything_is_400() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (turn, coding) in CODINGS.into_iter().enumerate() {
        let wire = ALL_WIRES[turn % 3];
        let whole = packed(coding, &wire.request(&key, "hi").body);
        let cut = &whole[..whole.len() - 1];
        for (what, body) in [
            ("cut", cut.to_vec()),
            ("empty", Vec::new()),
            ("followed", [&whole[..], b"\n"].concat()),
            ("followed by a cut one", [&whole[..], cut].concat()),
            ("plain", wire.request(&key, "hi").body),
        ] {
            let request = wire.request(&key, "").header("content-encoding", coding).body(&body);
            for upload in [Upload::Length, Upload::Chunked(20), Upload::Chunked(100_000)] {
                let mut client = weir.connect();
                client.write(&request.bytes(upload));
                let answer = client.response_to("POST");
                assert_refusal(wire, &answer, 400, invalid(wire, "body_encoding_invalid"));
                if wire == Wire::Messages {
                    let code = &answer.json()["error"]["details"]["error_code"];
                    assert_eq!(code, "request_body_encoding_invalid", "{coding} {what}");
                }
            }
        }
    }
    assert_eq!(provider.count(), 0);
}

/// The text cut in two, with each part packed by itself, and some of nothing.
fn in_members(coding: &str, text: &[u8]) -> Vec<u8> {
    let (first, second) = text.split_at(text.len() / 2);
    [b"", first, b"", second, b"", b"\n"]
        .map(|part| packed(coding, part))
        .concat()
}

#[test]
fn a_body_of_several_members_is_decoded_to_its_end_in_every_framing() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (wire, prompt) in [(Wire::Messages, "hi".to_owned()), (Wire::Responses, noise(300_000))] {
        let plain = wire.request(&key, &prompt);
        for coding in CODINGS {
            let body = in_members(coding, &plain.body);
            let request = plain.clone().header("content-encoding", coding).body(&body);
            let has_members = matches!(coding, "gzip" | "zstd");
            for upload in [Upload::Length, Upload::Chunked(7), Upload::Chunked(1 << 20)] {
                let what = format!("{wire:?} {coding} {upload:?}");
                // Without a length what follows a large value is not waited for.
                if upload != Upload::Length && body.len() > 64 * 1024 {
                    continue;
                }
                let mut client = weir.connect();
                client.write(&request.bytes(upload));
                let answer = client.response_to("POST");
                if has_members {
                    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                    let sent = [&plain.body[..], b"\n"].concat();
                    assert!(provider.last().body == sent, "{what}");
                } else {
                    assert_refusal(wire, &answer, 400, invalid(wire, "body_encoding_invalid"));
                }
            }
        }
    }
    // The value is cut between the members, and there is no length: all of them are read, however large they are.
    let plain = Wire::Responses.request(&key, &noise(300_000));
    let (first, second) = plain.body.split_at(200_000);
    for coding in ["gzip", "zstd"] {
        let body = [packed(coding, first), packed(coding, second)].concat();
        let request = plain.clone().header("content-encoding", coding).body(&body);
        for upload in [Upload::Chunked(5_000), Upload::Chunked(1 << 20)] {
            let mut client = weir.connect();
            client.write(&request.bytes(upload));
            let answer = client.response_to("POST");
            assert_eq!(answer.status, 200, "{coding} {upload:?}: {}", answer.text());
            assert!(provider.last().body == plain.body, "{coding} {upload:?}");
        }
    }
    // A second value is one too many, whichever member it comes in.
    for coding in ["gzip", "zstd"] {
        let whole = packed(coding, &plain.body);
        let request = plain.clone().header("content-encoding", coding);
        let request = request.body(&[&whole[..], &whole].concat());
        assert_refusal(Wire::Responses, &weir.exchange(&request), 400, "body_invalid");
    }
}

#[test]
fn the_limit_of_a_body_is_that_of_all_its_members() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", 100_000)
        .start();
    let key = weir.key().text;
    let small = Wire::Responses.request(&key, "").body.len();
    for (size, status) in [(99_999, 200), (100_000, 413)] {
        let plain = Wire::Responses.request(&key, &"x".repeat(size - small));
        for coding in ["gzip", "zstd"] {
            let request = plain.clone().header("content-encoding", coding);
            // One byte more: the line end in the last member.
            let answer = weir.exchange(&request.body(&in_members(coding, &plain.body)));
            assert_eq!(answer.status, status, "{coding} {size}: {}", answer.text());
        }
    }
}

#[test]
fn what_becomes_too_large_is_413_in_every_shape_and_framing() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", 100_000)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let small = wire.request(&key, "").body.len();
        for (size, status) in [(100_000, 200), (100_001, 413), (3_000_000, 413)] {
            let plain = wire.request(&key, &"x".repeat(size - small));
            assert_eq!(plain.body.len(), size);
            for coding in CODINGS {
                let request = coded(&plain, coding);
                for upload in [Upload::Length, Upload::Chunked(700)] {
                    let mut client = weir.connect();
                    client.write(&request.bytes(upload));
                    let answer = client.response_to("POST");
                    if status == 200 {
                        assert_eq!(answer.status, 200, "{wire:?} {coding} {upload:?}: {}", answer.text());
                        continue;
                    }
                    let kind = match wire {
                        Wire::Messages => "request_too_large",
                        Wire::Responses => "body_too_large_decoded",
                        Wire::Gemini => "INVALID_ARGUMENT",
                    };
                    assert_refusal(wire, &answer, 413, kind);
                    if wire == Wire::Messages {
                        let code = &answer.json()["error"]["details"]["error_code"];
                        assert_eq!(code, "request_body_too_large_after_decoding");
                    }
                }
            }
        }
    }
    assert_eq!(provider.count(), 3 * 4 * 2);
}

/// Gigabytes in a few kilobytes: a zstd frame of blocks that each repeat one byte 128 KiB long.
fn bomb() -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58];
    // RLE blocks (RFC 8878 section 3.1.1.2): size 128 KiB, not the last one.
    let header = (128_u32 * 1024) << 3 | 1 << 1;
    for _ in 0..32_768 {
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(b' ');
    }
    frame
}

#[test]
fn a_bomb_costs_no_more_time_and_memory_than_the_largest_body() {
    let provider = RecordingProvider::least();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let body = bomb();
    let request = Wire::Messages
        .request(&key, "")
        .header("content-encoding", "zstd")
        .body(&body);
    // Once to warm up, so that what is compared is memory that the bomb alone took.
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    let before = weir.process().peak_memory();
    let started = Instant::now();
    for upload in [Upload::Length, Upload::Chunked(4_000)] {
        let mut client = weir.connect();
        client.write(&request.bytes(upload));
        assert_refusal(Wire::Messages, &client.response_to("POST"), 413, "request_too_large");
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let grown = weir.process().peak_memory().saturating_sub(before);
    // A few times the 32 MiB that a body may have: a growing buffer is copied, twice here, and the allocator keeps some.
    assert!(grown < 256 * 1024 * 1024, "{grown} bytes");
    assert_eq!(provider.count(), 1);
}

#[test]
fn nothing_is_decoded_for_a_caller_without_a_key() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    for wire in ALL_WIRES {
        // Were it looked at, it would be 400.
        let request = wire
            .request("wrong", "")
            .header("content-encoding", "gzip")
            .body(b"no gzip at all");
        assert_unauthorized(wire, &weir.exchange(&request));
    }
    assert_eq!(provider.connections(), 0);
}

#[test]
fn the_budget_counts_what_a_body_becomes() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", 900_000)
        .set("gateway.body_budget_bytes", 900_000)
        .start();
    let key = weir.key().text;
    let plain = Wire::Messages.request(&key, &"x".repeat(800_000));
    let request = coded(&plain, "gzip");
    let bytes = request.bytes(Upload::Length);
    let (most, rest) = bytes.split_at(bytes.len() - 5);
    let mut first = weir.connect();
    first.write(most);
    let held = format!("weir_body_bytes_buffered {}", plain.body.len());
    crate::harness::wait_until("the first body, decoded, in the budget", || {
        weir.metrics().contains(&held)
    });
    assert_refusal(Wire::Messages, &weir.exchange(&request), 503, "api_error");
    first.write(rest);
    assert_eq!(first.response_to("POST").status, 200);
    crate::harness::wait_for("room again", || {
        Some(weir.exchange(&request)).filter(|answer| answer.status == 200)
    });
}

#[test]
fn a_coded_body_waits_for_100_continue_like_any_other() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let plain = Wire::Responses.request(&key, &"long ".repeat(1000));
    let request = coded(&plain, "br").header("expect", "100-continue");
    let mut client = weir.connect();
    client.write(&request.head_bytes(Upload::Chunked(100)));
    assert_eq!(client.head_to("POST").status, 100);
    client.write(&request.body_bytes(Upload::Chunked(100)));
    assert_eq!(client.response_to("POST").status, 200);
    assert!(provider.last().body == plain.body);
}
