//! What is said: deterministic text derived from the prompt, thinking, or a tool call, cut into deltas.

use super::ask::Ask;
use super::offer::{self, Offer};
use super::script::Script;
use super::settings::Counting;
use super::{mark, tokens};
use crate::domain::wire::protocol::Protocol;

/// How much of a prompt or a tool result is echoed, in characters.
const ECHO_CHARS_MAX: usize = 160;
/// Words after the echo when the number of deltas is free.
const WORDS_DEFAULT: usize = 24;

const WORDS: [&str; 32] = [
    "water", "river", "stone", "bridge", "gate", "valley", "rain", "current", "meadow", "willow", "mill", "shore",
    "spring", "flow", "dam", "lake", "cloud", "morning", "boat", "island", "reed", "fish", "heron", "bank", "channel",
    "wheel", "measure", "level", "flood", "calm", "bend", "source",
];

/// The content of one answer, in the order it is sent: thinking, text, call. Every string is one delta.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ScriptedContent {
    /// The thinking shown, empty for none.
    pub(super) thinking: Vec<String>,
    pub(super) text: Vec<String>,
    /// The tool call, if it is one.
    pub(super) call: Option<Call>,
    /// Tokens of reasoning that is not shown, before the first word.
    hidden: u64,
    counting: Counting,
}

#[derive(Debug, PartialEq)]
pub(super) struct Call {
    /// The tool and its arguments.
    pub(super) tool: Offer,
    /// The arguments as text, in deltas; a single one where the protocol does not stream them.
    pub(super) deltas: Vec<String>,
}

impl ScriptedContent {
    /// The answer to `ask`; the same seed and prompt give the same answer.
    pub(super) fn to(ask: &Ask, protocol: Protocol, script: &Script, seed: u64, counting: Counting) -> Self {
        let bytes = script.delta_bytes();
        let hidden = script.hidden_tokens.unwrap_or(0);
        // An answer that is rendered once and reused must not quote one of the prompts it answers.
        let reusable = counting == Counting::Fixed && script.deltas.is_some();
        let prompt = if reusable {
            String::new()
        } else {
            mark::without(&ask.prompt)
        };
        let echo: String = prompt.chars().take(ECHO_CHARS_MAX).collect();
        let words = Words::new(seed ^ fingerprint(&prompt));
        let thinking = if ask.thinking {
            pieces(&format!("The user says \"{echo}\". A short answer will do."), bytes)
        } else {
            Vec::new()
        };
        if let Some(offer) = &ask.call {
            let arguments = offer.arguments_text();
            let deltas = match protocol {
                Protocol::Messages | Protocol::Responses => pieces(&arguments, bytes),
                Protocol::Gemini => vec![arguments],
            };
            let call = Call {
                tool: offer.clone(),
                deltas,
            };
            return Self {
                thinking,
                text: pieces("I will look that up.", bytes),
                call: Some(call),
                hidden,
                counting,
            };
        }
        let opening = match &ask.tool_result {
            Some(result) if !reusable => {
                format!(
                    "The tool says \"{}\".",
                    result.chars().take(ECHO_CHARS_MAX).collect::<String>()
                )
            }
            _ => format!("You said \"{echo}\"."),
        };
        let text = match (&ask.schema, script.deltas) {
            (Some(schema), _) => pieces(&offer::fitting(schema).to_string(), bytes),
            (None, Some(count)) => numbered(&opening, words, count, bytes),
            (None, None) => {
                let mut text = opening;
                for word in words.take(WORDS_DEFAULT) {
                    text.push(' ');
                    text.push_str(word);
                }
                text.push('.');
                pieces(&text, bytes)
            }
        };
        Self {
            thinking,
            text,
            call: None,
            hidden,
            counting,
        }
    }

    pub(super) fn deltas(&self) -> usize {
        self.thinking.len() + self.text.len() + self.call.as_ref().map_or(0, |call| call.deltas.len())
    }

    /// The output tokens of the whole answer.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens_after(self.deltas())
    }

    /// The output tokens when `deltas` deltas have been generated; what is hidden was thought before the first.
    pub(super) fn tokens_after(&self, deltas: usize) -> u64 {
        let hidden = if deltas > 0 { self.hidden } else { 0 };
        self.shown_after(deltas) + hidden
    }

    /// The tokens of the first `deltas` deltas.
    fn shown_after(&self, deltas: usize) -> u64 {
        if self.counting == Counting::Fixed {
            return u64::try_from(deltas.min(self.deltas())).unwrap_or(u64::MAX);
        }
        let text = deltas.saturating_sub(self.thinking.len());
        let call = text.saturating_sub(self.text.len());
        let mut total = count(&self.thinking, deltas) + count(&self.text, text);
        if let Some(made) = self.call.as_ref().filter(|_| call > 0) {
            total += tokens::count(&made.tool.name) + count(&made.deltas, call);
        }
        total
    }

    /// The thinking tokens among the output tokens.
    pub(super) fn thinking_tokens(&self) -> u64 {
        self.shown_after(self.thinking.len()) + self.hidden
    }
}

/// The tokens of the first `take` deltas, as one text.
fn count(deltas: &[String], take: usize) -> u64 {
    if take == 0 || deltas.is_empty() {
        return 0;
    }
    tokens::count(&deltas.iter().take(take).map(String::as_str).collect::<String>())
}

/// `text` in pieces of at least `bytes` bytes (exactly, for ASCII), the last as long as what is left.
fn pieces(text: &str, bytes: usize) -> Vec<String> {
    let mut pieces = Vec::with_capacity(text.len().div_ceil(bytes.max(1)));
    let mut piece = String::new();
    for letter in text.chars() {
        piece.push(letter);
        if piece.len() >= bytes {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Exactly `count` pieces of at least `bytes` bytes: the opening, then words without end.
fn numbered(opening: &str, words: Words, count: usize, bytes: usize) -> Vec<String> {
    let mut letters = opening
        .chars()
        .chain(words.flat_map(|word| std::iter::once(' ').chain(word.chars())));
    (0..count)
        .map(|_| {
            let mut piece = String::with_capacity(bytes + 3);
            while piece.len() < bytes {
                let Some(letter) = letters.next() else { break };
                piece.push(letter);
            }
            piece
        })
        .collect()
}

/// FNV-1a: it only has to be the same on every machine.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// An endless, seeded sequence of words (SplitMix64).
#[derive(Clone)]
struct Words {
    state: u64,
}

impl Words {
    fn new(seed: u64) -> Self {
        Self { state: seed }
    }
}

impl Iterator for Words {
    type Item = &'static str;

    fn next(&mut self) -> Option<&'static str> {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let index = usize::try_from((mixed >> 32) % 32).unwrap_or(0);
        WORDS.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sample_provider::offer::Taking;

    fn answer(ask: &Ask, script: &Script) -> ScriptedContent {
        ScriptedContent::to(ask, Protocol::Messages, script, 1, Counting::Text)
    }

    fn asking(prompt: &str) -> Ask {
        Ask {
            prompt: prompt.to_owned(),
            ..Ask::default()
        }
    }

    #[test]
    fn number_and_size_of_deltas_are_exact() {
        let script = Script {
            deltas: Some(40),
            delta_bytes: Some(7),
            ..Script::default()
        };
        let answer = answer(&asking("hello"), &script);
        assert_eq!(answer.text.len(), 40);
        assert!(answer.text.iter().all(|delta| delta.len() == 7));
        assert!(answer.text.concat().starts_with("You said \"hello\". "));
    }

    #[test]
    fn the_same_seed_and_prompt_say_the_same() {
        let script = Script::default();
        assert_eq!(answer(&asking("a"), &script), answer(&asking("a"), &script));
        assert_ne!(answer(&asking("a"), &script), answer(&asking("b"), &script));
    }

    #[test]
    fn characters_are_not_split_and_marks_not_echoed() {
        let script = Script {
            delta_bytes: Some(1),
            ..Script::default()
        };
        let text = answer(&asking("grüß 🙂 [[sample: delta_bytes=1]]"), &script)
            .text
            .concat();
        assert!(text.starts_with("You said \"grüß 🙂\"."), "{text}");
    }

    #[test]
    fn hidden_reasoning_is_billed_from_the_first_word_on_and_never_shown() {
        let script = Script {
            deltas: Some(4),
            ..Script::default()
        };
        let shown = answer(&asking("hello"), &script);
        let hiding = answer(
            &asking("hello"),
            &Script {
                hidden_tokens: Some(2000),
                ..script
            },
        );
        assert_eq!((&hiding.text, hiding.thinking.len()), (&shown.text, 0));
        assert_eq!((hiding.tokens_after(0), hiding.thinking_tokens()), (0, 2000));
        for deltas in 1..=4 {
            assert_eq!(hiding.tokens_after(deltas), shown.tokens_after(deltas) + 2000);
        }
    }

    #[test]
    fn a_tool_result_is_quoted_and_a_schema_is_filled() {
        let ask = Ask {
            tool_result: Some("18 C".to_owned()),
            ..Ask::default()
        };
        assert!(
            answer(&ask, &Script::default())
                .text
                .concat()
                .starts_with("The tool says \"18 C\".")
        );
        let schema = json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let ask = Ask {
            schema: Some(schema),
            ..Ask::default()
        };
        assert_eq!(answer(&ask, &Script::default()).text.concat(), r#"{"n":1}"#);
    }

    #[test]
    fn tokens_of_a_part_grow_to_the_tokens_of_the_whole() {
        let offer = Offer {
            name: "get_weather".to_owned(),
            namespace: None,
            taking: Taking::Json,
            arguments: json!({"location": "Paris"}),
        };
        let ask = Ask {
            thinking: true,
            call: Some(offer),
            ..asking("weather")
        };
        let answer = answer(&ask, &Script::default());
        let counts: Vec<u64> = (0..=answer.deltas())
            .map(|deltas| answer.tokens_after(deltas))
            .collect();
        assert_eq!(counts.first(), Some(&0));
        assert_eq!(counts.last(), Some(&answer.tokens()));
        assert!(answer.thinking_tokens() > 0 && answer.thinking_tokens() < answer.tokens());
    }
}
