//! What a request asks for bounds its bill.

use super::*;
use UsageSource::{Bounded, Estimated, Partial, Reported};

const ASKED: Evidence<'static> = Evidence {
    output_requested: Some(64),
    ..EVIDENCE
};

fn reported(output_text: u64, output_reasoning: u64) -> (u64, u64, UsageSource) {
    let evidence = Evidence {
        reported: Some(usage(900, 50, output_text, output_reasoning)),
        output_observed: 10,
        ..ASKED
    };
    let (usage, source) = billed(&evidence);
    assert_eq!(usage.input_total(), 950);
    (usage.output_text, usage.output_reasoning, source)
}

#[test]
fn an_estimate_is_never_more_than_was_asked_for() {
    for end in [AnswerExtent::Whole, AnswerExtent::Cut, AnswerExtent::ClientLeft] {
        let evidence = Evidence {
            extent: end,
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
fn a_report_beyond_is_held_to_what_was_asked_for_and_never_to_less() {
    // Providers count hidden reasoning somewhat differently.
    assert_eq!(reported(10, 55), (10, 54, Bounded));
    assert_eq!(reported(65, 0), (64, 0, Bounded));
    assert_eq!(reported(90, 165), (64, 0, Bounded));
    // However far beyond.
    assert_eq!(reported(10, 246), (10, 54, Bounded));
    assert_eq!(reported(4_000, 0), (64, 0, Bounded));
    assert_eq!(reported(1 << 53, 1 << 53), (64, 0, Bounded));
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
    assert_eq!(billed(&evidence(5_000, 1_250)), (usage(900, 0, 5_000, 0), Reported));
    assert_eq!(billed(&evidence(5_000, 1_249)), (usage(900, 0, 4_996, 0), Bounded));
}

/// The bill of a report of so much output, where something was made that no limit holds for.
fn unlimited(unlimited: UnlimitedWork, asked: u64, output: u64) -> (u64, UsageSource) {
    let evidence = Evidence {
        reported: Some(usage(900, 0, 10, output - 10)),
        output_observed: 10,
        output_requested: Some(asked),
        unlimited,
        ..EVIDENCE
    };
    let (usage, source) = billed(&evidence);
    (usage.output_total(), source)
}

#[test]
fn each_run_that_a_tool_leads_to_may_be_as_long_as_was_asked_for() {
    let calls = |tool_calls, asked, output| unlimited(UnlimitedWork { tool_calls, images: 0 }, asked, output);
    assert_eq!(calls(2, 64, 192), (192, Reported));
    assert_eq!(calls(2, 64, 193), (192, Bounded));
    // Four rounds of code execution.
    assert_eq!(calls(4, 1_024, 4_100), (4_100, Reported));
    assert_eq!(calls(4, 1_024, 5_121), (5_120, Bounded));
    assert_eq!(calls(0, 1_024, 4_100), (1_024, Bounded));
    // Calls do not make it boundless.
    assert_eq!(calls(u64::MAX, 64, 640), (640, Reported));
    assert_eq!(calls(u64::MAX, 64, 641), (640, Bounded));
    // Nor is a prompt absurd that was read several times.
    let long = usage(1_900_000, 1_900_000, 10, 0);
    let evidence = Evidence {
        reported: Some(long),
        limits: ModelLimits {
            context_tokens: Some(1_000_000),
            output_tokens: None,
        },
        unlimited: UnlimitedWork {
            tool_calls: 3,
            images: 0,
        },
        ..EVIDENCE
    };
    assert_eq!(billed(&evidence), (long, Reported));
    let read_once = Evidence {
        unlimited: UnlimitedWork::default(),
        ..evidence
    };
    assert_eq!(billed(&read_once), (usage(1_000_000, 0, 10, 0), Bounded));
}

#[test]
fn an_image_is_outside_of_what_was_asked_for() {
    let images = |images, output| unlimited(UnlimitedWork { tool_calls: 0, images }, 300, output);
    assert_eq!(images(1, 1_290), (1_290, Reported));
    assert_eq!(images(0, 1_290), (300, Bounded));
    assert_eq!(images(1, 300 + IMAGE_TOKENS_MAX), (300 + IMAGE_TOKENS_MAX, Reported));
    assert_eq!(images(1, 301 + IMAGE_TOKENS_MAX), (300 + IMAGE_TOKENS_MAX, Bounded));
    // Images do not make it boundless.
    let most = 300 + IMAGES_MAX * IMAGE_TOKENS_MAX;
    assert_eq!(images(u64::MAX, most), (most, Reported));
    assert_eq!(images(u64::MAX, most + 1), (most, Bounded));
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
