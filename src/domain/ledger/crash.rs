//! The charge for requests that were running when weir crashed.

use crate::domain::{
    consumption::Row,
    ledger::{Admitted, Checkpoint, Settlement},
    money::NanoUsd,
};

/// The outcome in such a request's row.
pub const OUTCOME: &str = "crash";
/// The status in its row if its answer's head had not come: what a proxy in front of weir tells the client.
pub const STATUS: u16 = 502;

/// The settlement of a request whose end nobody saw: what its last checkpoint says it had consumed, or else what it was
/// admitted with.
pub fn settlement_after_crash(admitted: Admitted, checkpoint: Option<Checkpoint>) -> Settlement {
    let mut row = admitted.row;
    row.outcome = OUTCOME.to_owned();
    let mut status = row.status;
    if let Some(last) = checkpoint {
        status = last.status;
        // Both are counted from the arrival.
        let later = last.latency_ms.saturating_sub(row.latency_ms);
        row = Row {
            time_ms: row.time_ms.saturating_add(i64::try_from(later).unwrap_or(i64::MAX)),
            usage: last.usage,
            usage_source: last.source,
            modifiers: last.modifiers,
            parts: last.parts,
            cost_nano_usd: last.cost,
            provider: last.provider,
            latency_ms: row.latency_ms.max(last.latency_ms),
            ttft_ms: last.ttft_ms,
            ..row
        };
    }
    row.status = if status == 0 { STATUS } else { status };
    Settlement {
        request: row.request_id.clone(),
        key: row.key_id.clone(),
        at_ms: row.admitted_ms,
        tokens_estimated: admitted.tokens_estimated,
        tokens_used: row.usage.input_total().saturating_add(row.usage.output_total()),
        cost: row.cost_nano_usd,
        row: Some(row),
    }
}

/// The settlement of a request that was charged already: it ends the request and changes nothing else.
pub fn settlement_of_charged(admitted: Admitted) -> Settlement {
    let row = admitted.row;
    Settlement {
        request: row.request_id,
        key: row.key_id,
        at_ms: row.admitted_ms,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: NanoUsd::ZERO,
        row: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        consumption::{Modifiers, Part, UsageSource},
        key::KeyId,
        usage::{RunKind, Usage},
    };

    fn admitted() -> Admitted {
        Admitted {
            row: Row {
                time_ms: 10_000,
                admitted_ms: 9_990,
                request_id: "r1".to_owned(),
                account: "acme".to_owned(),
                key_id: KeyId::parse("key_0123456789abcdef").unwrap(),
                protocol: "messages".to_owned(),
                model_asked: "m".to_owned(),
                model: "m".to_owned(),
                provider: "first".to_owned(),
                status: 0,
                outcome: OUTCOME.to_owned(),
                stream: true,
                usage: Usage {
                    input_uncached: 100,
                    ..Usage::default()
                },
                usage_source: UsageSource::Estimated,
                parts: Vec::new(),
                modifiers: Modifiers::default(),
                price_version: "v1".to_owned(),
                cost_nano_usd: NanoUsd::from_nanos(100),
                latency_ms: 20,
                ttft_ms: None,
            },
            tokens_estimated: 700,
        }
    }

    fn part() -> Part {
        Part {
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
            (9_990, 10_000, 502, "crash")
        );
    }

    #[test]
    fn a_checkpoint_from_before_there_were_parts_can_be_read() {
        let json = r#"{"request":"r1","status":200,"output_text":4,"source":"partial","cost":9,"provider":"p","latency_ms":1,"ttft_ms":null}"#;
        let checkpoint: Checkpoint = serde_json::from_str(json).unwrap();
        assert_eq!((checkpoint.usage.output_text, checkpoint.parts.len()), (4, 0));
        assert_eq!(serde_json::to_string(&checkpoint).unwrap(), json);
    }

    #[test]
    fn the_last_checkpoint_is_charged() {
        let checkpoint = Checkpoint {
            request: "r1".to_owned(),
            status: 200,
            usage: Usage {
                input_uncached: 90,
                output_text: 40,
                ..Usage::default()
            },
            source: UsageSource::Partial,
            modifiers: Modifiers {
                speed: Some("fast".to_owned()),
                ..Modifiers::default()
            },
            parts: vec![part()],
            cost: NanoUsd::from_nanos(333),
            provider: "second".to_owned(),
            latency_ms: 3_020,
            ttft_ms: Some(400),
        };
        let settlement = settlement_after_crash(admitted(), Some(checkpoint));
        let row = settlement.row.unwrap();
        assert_eq!(
            (settlement.cost, settlement.tokens_used),
            (NanoUsd::from_nanos(333), 130)
        );
        assert_eq!(row.cost_nano_usd, settlement.cost);
        assert_eq!(row.parts, [part()]);
        assert_eq!((row.time_ms, row.latency_ms, row.ttft_ms), (13_000, 3_020, Some(400)));
        assert_eq!(
            (row.status, row.provider.as_str(), row.usage_source),
            (200, "second", UsageSource::Partial)
        );
        assert_eq!(
            (row.outcome.as_str(), row.modifiers.speed.as_deref()),
            ("crash", Some("fast"))
        );
    }
}
