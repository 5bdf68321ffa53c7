//! Tests of `compressed_body`.

use super::*;
use crate::{
    domain::keys::secret::KeyDigest,
    edges::body_budget::{BodyBudget, BodyHolder, BodyLimits},
    gateway::{
        coding::{
            decoding::PART_BYTES,
            tests::{ALL, packed},
        },
        request::body_work::{BodyWork, TURN_WAIT_MAX, WorkShare},
    },
};

const KEY: KeyDigest = KeyDigest::from_bytes([1; 32]);
const HOLDER: BodyHolder = BodyHolder {
    key: *KEY.as_bytes(),
    address: None,
};

fn budget(bytes_max: u64) -> BodyBudget {
    BodyBudget::new(BodyLimits {
        bytes_max,
        key_bytes_max: bytes_max,
        address_bytes_max: bytes_max,
    })
}

fn all_threads() -> BodyWork {
    BodyWork::new(WorkShare::new(1, 100), TURN_WAIT_MAX)
}

async fn unpack(coding: Coding, packed: &[u8], bytes_max: usize, budget: &BodyBudget) -> Result<Bytes, Refusal> {
    let work = all_threads().for_key(KEY);
    let mut body = CompressedBody::new(coding, bytes_max, budget.reservation(HOLDER))?;
    for piece in packed.chunks(1000) {
        body.push(Bytes::copy_from_slice(piece), &work).await?;
    }
    assert!(budget.in_use() <= bytes_max as u64 + 1);
    body.finish().map(|(text, _)| text)
}

#[tokio::test]
async fn the_decoded_size_is_limited_exactly() {
    let budget = budget(u64::MAX);
    for coding in ALL {
        for size in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 100_000] {
            let plain = vec![b'a'; size];
            let bytes = packed(coding, &plain);
            let fits = unpack(coding, &bytes, size, &budget).await;
            assert_eq!(fits, Ok(Bytes::from(plain)), "{coding:?} {size}");
            if size > 0 {
                let limit_bytes = size as u64 - 1;
                let refused = unpack(coding, &bytes, size - 1, &budget).await;
                assert_eq!(
                    refused,
                    Err(Refusal::BodyTooLargeDecoded { limit_bytes }),
                    "{coding:?} {size}"
                );
            }
        }
    }
    assert_eq!(budget.in_use(), 0);
}

#[tokio::test]
async fn the_budget_counts_decoded_bytes() {
    let plain = vec![b'a'; 100_000];
    for coding in ALL {
        let bytes = packed(coding, &plain);
        assert!(bytes.len() < 1000, "{coding:?}");
        let enough = budget(100_000);
        assert!(unpack(coding, &bytes, 1 << 20, &enough).await.is_ok(), "{coding:?}");
        let less = budget(99_999);
        let refused = unpack(coding, &bytes, 1 << 20, &less).await;
        assert_eq!(refused, Err(Refusal::BodyBudgetExhausted), "{coding:?}");
        assert_eq!((enough.in_use(), less.in_use()), (0, 0));
    }
}

#[tokio::test]
async fn what_is_cut_or_followed_by_anything_is_invalid() {
    let budget = budget(u64::MAX);
    for coding in ALL {
        let bytes = packed(coding, b"{\"model\":\"sample\"}");
        let encoding = coding.as_str();
        let cut = unpack(coding, &bytes[..bytes.len() - 1], 1000, &budget).await;
        assert_eq!(cut, Err(Refusal::BodyEncodingInvalid { encoding }), "cut");
        assert_eq!(
            unpack(coding, b"", 1000, &budget).await,
            Err(Refusal::BodyEncodingInvalid { encoding }),
            "empty"
        );
        for behind in [b" ".as_slice(), b"garbage", &bytes[..bytes.len() - 1]] {
            let both = [&bytes, behind].concat();
            let followed = unpack(coding, &both, 1000, &budget).await;
            assert_eq!(followed, Err(Refusal::BodyEncodingInvalid { encoding }), "{behind:?}");
        }
    }
}

#[tokio::test]
async fn several_members_are_one_body_in_any_pieces() {
    let (budget, work) = (budget(u64::MAX), all_threads().for_key(KEY));
    let text = b"{\"a\":\"}\",\"b\":[1,2]}";
    for coding in ALL {
        let one = packed(coding, text);
        let has_members = matches!(coding, Coding::Gzip | Coding::Zstd);
        for cut in 0..=text.len() {
            let members = [packed(coding, &text[..cut]), packed(coding, &text[cut..])].concat();
            for step in [1, 7, one.len(), members.len()] {
                let mut body = CompressedBody::new(coding, text.len(), budget.reservation(HOLDER)).unwrap();
                let mut refused = None;
                let mut may_end = false;
                for piece in members.chunks(step) {
                    match body.push(Bytes::copy_from_slice(piece), &work).await {
                        Ok(ends) => may_end = ends,
                        Err(refusal) => {
                            refused = Some(refusal);
                            break;
                        }
                    }
                }
                let encoding = coding.as_str();
                if has_members {
                    assert!(may_end && refused.is_none(), "{coding:?} {cut} {step}: {refused:?}");
                    assert_eq!(body.finish().unwrap().0, text.as_slice(), "{coding:?} {cut} {step}");
                } else {
                    assert_eq!(
                        refused,
                        Some(Refusal::BodyEncodingInvalid { encoding }),
                        "{coding:?} {cut}"
                    );
                }
            }
        }
        // The end of a stream is not the end of a body whose value goes on.
        let mut body = CompressedBody::new(coding, 100, budget.reservation(HOLDER)).unwrap();
        assert_eq!(
            body.push(packed(coding, b"{\"a\":").into(), &work).await,
            Ok(false),
            "{coding:?}"
        );
    }
}

#[tokio::test]
async fn a_large_body_waits_for_a_turn_and_a_small_one_does_not() {
    let (budget, work) = (budget(u64::MAX), all_threads());
    let held = work.for_key(KEY).acquire_turn().await.unwrap();
    for coding in ALL {
        let mine = work.for_key(KEY);
        let value = [b"{}", vec![b' '; AT_ONCE_DECODED_BYTES_MAX - 3].as_slice()].concat();
        let small = packed(coding, &value);
        let mut body = CompressedBody::new(coding, 1 << 20, budget.reservation(HOLDER)).unwrap();
        assert_eq!(body.push(small.into(), &mine).await, Ok(true), "{coding:?}");
        let large = packed(coding, &vec![b'a'; AT_ONCE_DECODED_BYTES_MAX + STEP_BYTES]);
        let mut body = CompressedBody::new(coding, 1 << 20, budget.reservation(HOLDER)).unwrap();
        let pushing = body.push(large.into(), &mine);
        tokio::pin!(pushing);
        tokio::select! {
            biased;
            _ = &mut pushing => panic!("{coding:?} did not wait"),
            () = tokio::task::yield_now() => {}
        }
        let read = usize::try_from(budget.in_use()).unwrap();
        assert!(
            (AT_ONCE_DECODED_BYTES_MAX..AT_ONCE_DECODED_BYTES_MAX + STEP_BYTES).contains(&read),
            "{coding:?} {read}"
        );
    }
    drop(held);
}
