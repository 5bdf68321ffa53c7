//! Tests of `bill`.

use super::*;

const EVIDENCE: Evidence<'static> = Evidence {
    reported: None,
    runs: &[],
    is_full: true,
    extent: AnswerExtent::Whole,
    input_scanned: 1_000,
    output_observed: 200,
    input_factor: TokenFactor::ONE,
    output_factor: TokenFactor::ONE,
    limits: ModelLimits {
        context_tokens: None,
        output_tokens: None,
    },
    output_requested: None,
    unlimited: UnlimitedWork {
        tool_calls: 0,
        images: 0,
    },
};

/// What is billed without regard to runs.
fn billed(evidence: &Evidence<'_>) -> (Usage, UsageSource) {
    let BilledUsage { usage, source, .. } = bill(evidence);
    (usage, source)
}

fn usage(input_uncached: u64, cache_read: u64, output_text: u64, output_reasoning: u64) -> Usage {
    Usage {
        input_uncached,
        cache_read,
        output_text,
        output_reasoning,
        ..Usage::default()
    }
}

#[test]
fn what_is_billed_follows_the_table() {
    use AnswerExtent::{ClientLeft, Cut, NoAnswer, Refused, Whole};
    use UsageSource::{Estimated, Partial, Reported};
    let start = usage(900, 50, 1, 0);
    let zero = Usage::default();
    let estimate = usage(1_000, 0, 200, 0);
    let cases = [
        // Reported and final: as it is, also zeros.
        (Some(usage(900, 50, 300, 70)), Whole, usage(900, 50, 300, 70), Reported),
        (Some(usage(900, 50, 3, 0)), Whole, usage(900, 50, 3, 0), Reported),
        (Some(zero), Whole, zero, Reported),
        (Some(usage(900, 0, 0, 0)), Refused, usage(900, 0, 0, 0), Reported),
        // Broken off: the report so far, and the text that passed.
        (Some(start), Cut, usage(900, 50, 200, 0), Partial),
        (Some(start), ClientLeft, usage(900, 50, 200, 0), Partial),
        (Some(usage(900, 50, 150, 100)), Cut, usage(900, 50, 150, 100), Partial),
        (Some(usage(900, 50, 100, 40)), Cut, usage(900, 50, 160, 40), Partial),
        (Some(start), NoAnswer, usage(900, 50, 200, 0), Partial),
        // Zeros before the end are not known to be meant.
        (Some(zero), Cut, estimate, Partial),
        // Nothing reported.
        (None, Whole, estimate, Estimated),
        (None, Cut, estimate, Estimated),
        (None, ClientLeft, estimate, Estimated),
        (None, Refused, zero, Estimated),
        (None, NoAnswer, zero, Estimated),
    ];
    for (reported, end, wanted, source) in cases {
        let evidence = Evidence {
            reported,
            extent: end,
            ..EVIDENCE
        };
        assert_eq!(billed(&evidence), (wanted, source), "{reported:?} {end:?}");
    }
}

#[test]
fn a_client_that_left_before_the_first_byte_pays_for_the_input() {
    let evidence = Evidence {
        extent: AnswerExtent::ClientLeft,
        output_observed: 0,
        ..EVIDENCE
    };
    assert_eq!(billed(&evidence), (usage(1_000, 0, 0, 0), UsageSource::Estimated));
}

#[test]
fn estimates_are_corrected_and_kept_within_what_the_model_can_do() {
    let mut learnt = crate::domain::ledger::calibration::Calibration::default();
    (0..200).for_each(|_| learnt.learn(1_000, 2_000));
    let evidence = Evidence {
        input_factor: learnt.factor(),
        output_factor: learnt.factor(),
        limits: ModelLimits {
            context_tokens: Some(1_500),
            output_tokens: Some(300),
        },
        ..EVIDENCE
    };
    assert_eq!(billed(&evidence).0, usage(1_500, 0, 300, 0));
}

#[test]
fn a_report_of_more_than_the_model_can_do_and_weir_has_seen_is_held_to_the_larger_of_both() {
    let limits = Evidence {
        limits: ModelLimits {
            context_tokens: Some(2_000),
            output_tokens: Some(500),
        },
        ..EVIDENCE
    };
    let billed = |reported| {
        let evidence = Evidence {
            reported: Some(reported),
            ..limits
        };
        billed(&evidence)
    };
    use UsageSource::{Bounded, Reported};
    // Beyond both: four times what was seen is more than the model can do here.
    assert_eq!(billed(usage(1_000, 0, 1 << 53, 0)), (usage(1_000, 0, 800, 0), Bounded));
    assert_eq!(billed(usage(4_001, 0, 10, 0)), (usage(4_000, 0, 10, 0), Bounded));
    assert_eq!(billed(usage(3_900, 200, 10, 0)), (usage(3_900, 100, 10, 0), Bounded));
    // Beyond the model, but near to what was seen; far from what was seen, but within the model.
    for reported in [usage(4_000, 0, 10, 0), usage(1_000, 0, 10, 790), usage(10, 0, 499, 0)] {
        assert_eq!(billed(reported), (reported, Reported));
    }
    let unseen = Evidence {
        output_observed: 0,
        reported: Some(usage(1_000, 0, 0, 501)),
        ..limits
    };
    assert_eq!(self::billed(&unseen), (usage(1_000, 0, 0, 500), Bounded));
}

#[test]
fn a_report_is_bounded_where_nothing_is_known_of_the_model() {
    let billed = |reported, end| {
        billed(&Evidence {
            reported: Some(reported),
            extent: end,
            ..EVIDENCE
        })
    };
    use UsageSource::{Bounded, Partial, Reported};
    let calls = |web_searches, web_fetches| Usage {
        web_searches,
        web_fetches,
        ..usage(900, 0, 300, 0)
    };
    for (within, beyond) in [
        (usage(INPUT_PLAUSIBLE, 0, 300, 0), usage(INPUT_PLAUSIBLE, 1, 300, 0)),
        (usage(1, 0, 1, OUTPUT_PLAUSIBLE - 1), usage(1, 0, 1, OUTPUT_PLAUSIBLE)),
        (usage(1, 0, OUTPUT_PLAUSIBLE, 0), usage(1, 0, OUTPUT_PLAUSIBLE + 1, 7)),
        (calls(CALLS_PLAUSIBLE, 0), calls(CALLS_PLAUSIBLE + 1, 0)),
        (calls(0, CALLS_PLAUSIBLE), calls(0, CALLS_PLAUSIBLE + 1)),
        (
            usage(INPUT_PLAUSIBLE, 0, OUTPUT_PLAUSIBLE, 0),
            usage(1 << 53, 1 << 53, 1 << 53, 1 << 53),
        ),
    ] {
        assert_eq!(billed(within, AnswerExtent::Whole), (within, Reported));
        assert_eq!(billed(within, AnswerExtent::Cut), (within, Partial));
        for end in [
            AnswerExtent::Whole,
            AnswerExtent::Cut,
            AnswerExtent::ClientLeft,
            AnswerExtent::Refused,
        ] {
            assert_eq!(billed(beyond, end), (within, Bounded), "{beyond:?}");
        }
    }
    // A prompt that weir has seen to be so long.
    let long = Evidence {
        reported: Some(usage(INPUT_PLAUSIBLE * ESTIMATE_TIMES_MAX, 0, 1, 0)),
        input_scanned: INPUT_PLAUSIBLE,
        ..EVIDENCE
    };
    assert_eq!(bill(&long).source, Reported);
}

mod asked;
mod runs;
