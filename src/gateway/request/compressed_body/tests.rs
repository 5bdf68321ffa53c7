//! Tests of `compressed_body`.

use super::*;
use crate::{
    edges::body_budget::BodyBudget,
    gateway::coding::{
        decoding::PART_BYTES,
        tests::{ALL, packed},
    },
};

async fn unpack(coding: Coding, packed: &[u8], bytes_max: usize, budget: &BodyBudget) -> Result<Bytes, Refusal> {
    let mut lease = budget.try_reserve(0).unwrap();
    let mut body = CompressedBody::new(coding, bytes_max)?;
    for piece in packed.chunks(1000) {
        body.push(piece, &mut lease).await?;
    }
    assert!(lease.bytes() <= bytes_max as u64 + 1);
    body.finish()
}

#[tokio::test]
async fn the_decoded_size_is_limited_exactly() {
    let budget = BodyBudget::new(u64::MAX);
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
        let enough = BodyBudget::new(100_000);
        assert!(unpack(coding, &bytes, 1 << 20, &enough).await.is_ok(), "{coding:?}");
        let less = BodyBudget::new(99_999);
        let refused = unpack(coding, &bytes, 1 << 20, &less).await;
        assert_eq!(refused, Err(Refusal::BodyBudgetExhausted), "{coding:?}");
        assert_eq!((enough.in_use(), less.in_use()), (0, 0));
    }
}

#[tokio::test]
async fn what_is_cut_or_followed_by_anything_is_invalid() {
    let budget = BodyBudget::new(u64::MAX);
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
        for behind in [b" ".as_slice(), b"garbage", &bytes] {
            let both = [&bytes, behind].concat();
            let followed = unpack(coding, &both, 1000, &budget).await;
            assert_eq!(followed, Err(Refusal::BodyEncodingInvalid { encoding }), "{behind:?}");
        }
    }
}
