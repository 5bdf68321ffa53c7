//! The usage that a client gets is the one that the translator was given, and that is what the provider has reported.

use proptest::prelude::*;
use serde_json::Value;

use super::{client_bytes, clients::read_answer, forms, frame, recordings::Recording};
use crate::domain::{
    translation::answer::write::AnswerForm,
    wire::{
        Protocol,
        protocol::{AnswerFraming, Observer},
        usage::Usage,
    },
};

/// The largest count of a part in these tests: sums of all parts stay exact.
const PART_MAX: u64 = 1 << 40;

/// The counts that a client reads out of its final object.
#[derive(Debug, PartialEq, Eq)]
struct ClientCounts {
    /// All input.
    input: u64,
    /// The input that was read from a cache.
    cached: u64,
    /// All output.
    output: u64,
    /// The output that was reasoning.
    reasoning: u64,
}

impl ClientCounts {
    fn of_usage(usage: &Usage) -> Self {
        Self {
            input: usage.input_total(),
            cached: usage.cache_read_total(),
            output: usage.output_total(),
            reasoning: usage.output_reasoning,
        }
    }

    /// Adds the counts up as the client's protocol says.
    fn of_object(client: Protocol, object: &Value) -> Self {
        let required = |path: &str| object.pointer(path).and_then(Value::as_u64).unwrap();
        let optional = |path: &str| object.pointer(path).map_or(0, |count| count.as_u64().unwrap());
        match client {
            Protocol::Messages => {
                let cached = required("/usage/cache_read_input_tokens");
                Self {
                    input: required("/usage/input_tokens") + required("/usage/cache_creation_input_tokens") + cached,
                    cached,
                    output: required("/usage/output_tokens"),
                    reasoning: required("/usage/output_tokens_details/thinking_tokens"),
                }
            }
            Protocol::Responses => {
                let (input, output) = (required("/usage/input_tokens"), required("/usage/output_tokens"));
                assert_eq!(required("/usage/total_tokens"), input + output);
                Self {
                    input,
                    cached: required("/usage/input_tokens_details/cached_tokens"),
                    output,
                    reasoning: required("/usage/output_tokens_details/reasoning_tokens"),
                }
            }
            Protocol::Gemini => {
                let prompt = required("/usageMetadata/promptTokenCount");
                let input = prompt + optional("/usageMetadata/toolUsePromptTokenCount");
                let reasoning = optional("/usageMetadata/thoughtsTokenCount");
                let output = required("/usageMetadata/candidatesTokenCount") + reasoning;
                assert_eq!(required("/usageMetadata/totalTokenCount"), input + output);
                Self {
                    input,
                    cached: optional("/usageMetadata/cachedContentTokenCount"),
                    output,
                    reasoning,
                }
            }
        }
    }
}

/// The recordings of complete answers.
fn complete() -> impl Iterator<Item = &'static Recording> {
    let recordings = Recording::all().iter();
    recordings.filter(|recording| recording.expected.error.is_none())
}

/// The counts for a client of a recording whose usage was this.
fn client_counts(recording: &Recording, client: Protocol, usage: &Usage) -> Vec<ClientCounts> {
    let translation = recording.translation(client);
    let count = |form: &AnswerForm| {
        let pieces = [recording.stream.as_bytes()];
        let answer = client_bytes(&translation, frame(*form, true), true, pieces, usage);
        let object = read_answer(client, *form, &answer.text).object;
        ClientCounts::of_object(client, &object)
    };
    forms(client).iter().map(count).collect()
}

#[test]
fn the_meter_reads_what_each_recording_reports() {
    for recording in complete() {
        let answers = [
            (AnswerFraming::Sse, &recording.stream),
            (AnswerFraming::Json, recording.body.as_ref().unwrap()),
        ];
        for (framing, text) in answers {
            let mut observer = Observer::new(recording.protocol, framing);
            observer.push(text.as_bytes());
            let usage = observer.observed().usage;
            assert_eq!(usage, Some(recording.expected.usage), "{} {framing:?}", recording.name);
        }
    }
}

#[test]
fn each_client_gets_the_usage_of_the_meter() {
    for recording in complete() {
        for client in Protocol::ALL {
            let usage = &recording.expected.usage;
            for counts in client_counts(recording, client, usage) {
                assert_eq!(counts, ClientCounts::of_usage(usage), "{} {client:?}", recording.name);
            }
        }
    }
}

proptest! {
    #[test]
    fn each_client_gets_any_usage_that_is_billed(
        number in any::<prop::sample::Index>(),
        parts in prop::collection::vec(prop_oneof![Just(0_u64), 1..PART_MAX], Usage::NAMES.len()),
    ) {
        let usage = Usage::from_parts(parts.try_into().unwrap());
        let recordings: Vec<&Recording> = complete().collect();
        let recording = number.get(&recordings);
        for client in Protocol::ALL {
            for counts in client_counts(recording, client, &usage) {
                prop_assert_eq!(counts, ClientCounts::of_usage(&usage), "{} {:?}", recording.name, client);
            }
        }
    }
}
