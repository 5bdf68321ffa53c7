//! What a request asks for bounds its bill.

use super::*;
use UsageSource::{Estimated, Partial, Reported};

const ASKED: Evidence<'static> = Evidence {
    output_asked: Some(64),
    ..EVIDENCE
};

fn reported(output_text: u64, output_reasoning: u64) -> (u64, u64, UsageSource) {
    let evidence = Evidence {
        reported: Some(usage(900, 50, output_text, output_reasoning)),
        output_observed: 10,
        ..ASKED
    };
    let (usage, source) = billed(&evidence);
    assert!(source == Estimated || usage.input_total() == 950);
    (usage.output_text, usage.output_reasoning, source)
}

#[test]
fn an_estimate_is_never_more_than_was_asked_for() {
    for end in [End::Whole, End::Cut, End::ClientLeft] {
        let evidence = Evidence {
            end,
            output_observed: 5_000_000,
            ..ASKED
        };
        assert_eq!(billed(&evidence), (usage(1_000, 0, 64, 0), Estimated), "{end:?}");
        let partial = Evidence {
            reported: Some(usage(900, 0, 1, 0)),
            is_full: false,
            ..evidence
        };
        assert_eq!(billed(&partial), (usage(900, 0, 64, 0), Partial), "{end:?}");
    }
}

#[test]
fn a_report_within_what_was_asked_for_is_billed_as_it_is() {
    assert_eq!(reported(64, 0), (64, 0, Reported));
    assert_eq!(
        reported(4, 60),
        (4, 60, Reported),
        "reasoning is asked for with the rest"
    );
}

#[test]
fn a_report_somewhat_beyond_is_held_to_what_was_asked_for() {
    // Providers count hidden reasoning somewhat differently.
    assert_eq!(reported(10, 55), (10, 54, Partial));
    assert_eq!(reported(65, 0), (64, 0, Partial));
    assert_eq!(reported(90, 165), (64, 0, Partial));
}

#[test]
fn a_report_far_beyond_is_as_none() {
    assert_eq!(reported(10, 246), (10, 0, Estimated));
    assert_eq!(reported(999_999, 0), (10, 0, Estimated));
}

#[test]
fn a_report_that_the_text_bears_out_is_billed_although_less_was_asked_for() {
    let evidence = |reported_output, output_observed| Evidence {
        reported: Some(usage(900, 0, reported_output, 0)),
        output_observed,
        ..ASKED
    };
    // The provider did not keep to it, and the client has the text.
    assert_eq!(billed(&evidence(5_000, 4_000)), (usage(900, 0, 5_000, 0), Reported));
    assert_eq!(billed(&evidence(5_000, 1_251)), (usage(900, 0, 5_000, 0), Reported));
    assert_eq!(billed(&evidence(5_000, 1_250)).1, Estimated);
}

#[test]
fn each_run_that_a_tool_leads_to_may_be_as_long_as_was_asked_for() {
    let searched = |web_searches, output_reasoning| Usage {
        web_searches,
        ..usage(900, 0, 10, output_reasoning)
    };
    let source = |reported, asked_per_run| {
        let evidence = Evidence {
            reported: Some(reported),
            output_observed: 10,
            asked_per_run,
            ..ASKED
        };
        billed(&evidence).1
    };
    assert_eq!(source(searched(2, 182), true), Reported);
    assert_eq!(source(searched(2, 183), true), Partial);
    assert_eq!(source(searched(2, 182), false), Partial);
    // Calls do not make it boundless.
    assert_eq!(source(searched(10_000, 630), true), Reported);
    assert_eq!(source(searched(10_000, 631), true), Partial);
    // Nor is a prompt absurd that was read several times.
    let long = Usage {
        web_searches: 3,
        ..usage(1_900_000, 1_900_000, 10, 0)
    };
    let evidence = Evidence {
        reported: Some(long),
        limits: Limits {
            context_tokens: Some(1_000_000),
            output_tokens: None,
        },
        asked_per_run: true,
        ..EVIDENCE
    };
    assert_eq!(billed(&evidence), (long, Reported));
}

#[test]
fn a_whole_answer_whose_report_lacks_the_output_is_billed_for_what_passed() {
    let evidence = Evidence {
        reported: Some(usage(900, 50, 0, 0)),
        is_full: false,
        ..EVIDENCE
    };
    assert_eq!(billed(&evidence), (usage(900, 50, 200, 0), Partial));
}
