//! Settlements of requests that were running when weir crashed.

use std::sync::Arc;

use crate::domain::ledger::{
    journaled::{AdmittedRequest, Checkpoint},
    step::Settlement,
};

/// The status in the row of such a request if the answer's head had not arrived: the one that a proxy in front of weir sends to
/// the client.
pub(crate) const CRASH_STATUS: u16 = 502;

/// The settlement of a request whose end is unknown: charges the consumption of its last checkpoint, or else the row of its
/// admission.
pub(crate) fn settlement_after_crash(admitted: AdmittedRequest, checkpoint: Option<Checkpoint>) -> Settlement {
    let AdmittedRequest {
        row: mut shared,
        tokens_estimated,
        lease,
    } = admitted;
    let row = Arc::make_mut(&mut shared);
    if let Some(last) = checkpoint {
        // Both latencies are counted from the arrival.
        let later = last.latency_ms.saturating_sub(row.latency_ms);
        row.time_ms = row.time_ms.saturating_add(i64::try_from(later).unwrap_or(i64::MAX));
        row.provider = last.provider;
        row.status = last.status;
        row.usage = last.usage;
        row.usage_source = last.source;
        row.parts = last.parts;
        row.modifiers = last.modifiers;
        row.cost_nano_usd = last.cost;
        row.latency_ms = row.latency_ms.max(last.latency_ms);
        row.ttft_ms = last.ttft_ms;
        row.attempts = Some(last.attempts);
    }
    if row.status == 0 {
        row.status = CRASH_STATUS;
    }
    Settlement::of(shared, tokens_estimated).with_lease(lease)
}

/// The settlement of a request that was already charged: ends the request and changes nothing else.
pub(crate) fn settlement_of_charged(admitted: AdmittedRequest) -> Settlement {
    Settlement {
        tokens_estimated: 0,
        ..admitted.without_charge()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        keys::key::KeyId,
        ledger::consumption::{CRASH, CostShare, PriceModifiers, Row, UsageSource},
        money::NanoUsd,
        wire::usage::{RunKind, Usage},
    };

    fn admitted() -> AdmittedRequest {
        let row = Arc::new(Row {
            time_ms: 9_990,
            admitted_ms: 9_990,
            request_id: "r1".into(),
            account: "acme".into(),
            key_id: KeyId::parse("key_0123456789abcdef").unwrap(),
            protocol: "messages".into(),
            model_asked: "m".into(),
            model: "m".into(),
            provider: "first".into(),
            status: 0,
            outcome: CRASH.into(),
            stream: true,
            tags: Vec::new(),
            usage: Usage {
                input_uncached: 100,
                ..Usage::default()
            },
            usage_source: UsageSource::Estimated,
            parts: Vec::new(),
            modifiers: PriceModifiers::default(),
            price_version: "v1".into(),
            cost_nano_usd: NanoUsd::from_nanos(100),
            latency_ms: 20,
            ttft_ms: None,
            hold_nano_usd: None,
            attempts: None,
        });
        AdmittedRequest {
            row,
            tokens_estimated: 700,
            lease: None,
        }
    }

    fn part() -> CostShare {
        CostShare {
            run: RunKind::Advisor,
            model: "n".to_owned(),
            usage: Usage {
                output_text: 7,
                ..Usage::default()
            },
            priced_as: None,
            price_version: None,
            above_input_tokens: 0,
            cost_nano_usd: NanoUsd::from_nanos(30),
        }
    }

    #[test]
    fn without_a_checkpoint_the_input_is_charged() {
        let settlement = settlement_after_crash(admitted(), None);
        let row = settlement.row.unwrap();
        assert_eq!(
            (settlement.cost, row.cost_nano_usd),
            (NanoUsd::from_nanos(100), NanoUsd::from_nanos(100))
        );
        assert_eq!((settlement.tokens_estimated, settlement.tokens_used), (700, 100));
        assert_eq!(
            (settlement.at_ms, row.time_ms, row.status, row.outcome.as_str()),
            (9_990, 9_990, 502, "crash")
        );
    }

    #[test]
    fn a_crash_leaves_what_was_held_and_no_attempts_that_nobody_counted() {
        let mut admitted = admitted();
        Arc::make_mut(&mut admitted.row).hold_nano_usd = Some(NanoUsd::from_nanos(5_000));
        let row = settlement_after_crash(admitted, None).row.unwrap();
        assert_eq!(
            (row.hold_nano_usd, row.attempts),
            (Some(NanoUsd::from_nanos(5_000)), None)
        );
    }

    #[test]
    fn the_last_checkpoint_is_charged() {
        let checkpoint = Checkpoint {
            request: "r1".into(),
            status: 200,
            usage: Usage {
                input_uncached: 90,
                output_text: 40,
                ..Usage::default()
            },
            source: UsageSource::Partial,
            modifiers: PriceModifiers {
                speed: Some("fast".into()),
                ..PriceModifiers::default()
            },
            parts: vec![part()],
            cost: NanoUsd::from_nanos(333),
            provider: "second".into(),
            latency_ms: 3_020,
            ttft_ms: Some(400),
            attempts: 2,
        };
        let settlement = settlement_after_crash(admitted(), Some(checkpoint));
        let row = settlement.row.unwrap();
        assert_eq!(
            (settlement.cost, settlement.tokens_used),
            (NanoUsd::from_nanos(333), 130)
        );
        assert_eq!(row.cost_nano_usd, settlement.cost);
        assert_eq!(row.parts, [part()]);
        assert_eq!((row.time_ms, row.latency_ms, row.ttft_ms), (12_990, 3_020, Some(400)));
        assert_eq!(
            (row.status, row.provider.as_str(), row.usage_source),
            (200, "second", UsageSource::Partial)
        );
        assert_eq!(
            (row.outcome.as_str(), row.modifiers.speed.as_deref()),
            ("crash", Some("fast"))
        );
        assert_eq!(row.attempts, Some(2));
    }
}
