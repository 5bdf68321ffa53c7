//! The prices that are shipped, against the figures of their sources.

use super::*;

/// Nano-USD of 1000 tokens each, which are USD per 1M tokens times 1,000,000: input, cache write short and long, cache read,
/// output. Where the source has none, a cache costs what input costs.
const SOURCES: &[(&str, [i64; 5])] = &[
    (
        "claude-fable-5-1",
        [10_000_000, 12_500_000, 20_000_000, 250_000, 50_000_000],
    ),
    (
        "claude-opus-5-5",
        [4_000_000, 5_000_000, 8_000_000, 200_000, 20_000_000],
    ),
    (
        "claude-sonnet-5-5",
        [2_000_000, 2_500_000, 4_000_000, 100_000, 10_000_000],
    ),
    ("claude-haiku-5-5", [100_000, 125_000, 200_000, 10_000, 500_000]),
    (
        "claude-haiku-4-5",
        [1_000_000, 1_250_000, 2_000_000, 100_000, 5_000_000],
    ),
    (
        "gpt-6-astra",
        [10_000_000, 12_500_000, 25_000_000, 1_000_000, 50_000_000],
    ),
    ("gpt-6.1-sol", [2_000_000, 2_500_000, 5_000_000, 100_000, 10_000_000]),
    ("gpt-6-luna", [100_000, 125_000, 250_000, 10_000, 500_000]),
    ("gpt-5.6-sol", [4_000_000, 5_000_000, 10_000_000, 400_000, 20_000_000]),
    ("gpt-5.5", [5_000_000, 5_000_000, 5_000_000, 500_000, 30_000_000]),
    (
        "gemini-3.1-pro-preview",
        [2_000_000, 2_000_000, 2_000_000, 200_000, 12_000_000],
    ),
    ("gemini-3.8-flash", [750_000, 750_000, 750_000, 75_000, 3_750_000]),
    ("gemini-3.5-flash-lite", [300_000, 300_000, 300_000, 30_000, 2_500_000]),
    (
        "gemini-3-pro-image",
        [2_000_000, 2_000_000, 2_000_000, 2_000_000, 12_000_000],
    ),
    ("deepseek-v4-pro", [1_320_000, 0, 0, 44_000, 3_960_000]),
    ("deepseek-flash", [300_000, 0, 0, 6_000, 1_200_000]),
    ("kimi-k3", [3_000_000, 3_000_000, 6_000_000, 300_000, 15_000_000]),
    ("glm-5.3", [1_400_000, 0, 0, 260_000, 4_400_000]),
    ("glm-5.3-flash", [150_000, 0, 0, 30_000, 500_000]),
    ("MiniMax-M3", [300_000, 300_000, 300_000, 60_000, 1_200_000]),
    ("qwen3.8-max", [2_000_000, 2_000_000, 2_000_000, 250_000, 6_000_000]),
    ("qwen3.7-plus", [400_000, 400_000, 400_000, 80_000, 1_600_000]),
    ("mimo-v2.6-pro", [435_000, 435_000, 435_000, 3_600, 870_000]),
];

/// The same of the models of hosts: the host, the price's name, and nano-USD of 1000 tokens of input, cache read and output. A cache
/// is written at the price of input.
const HOSTS: &[(&str, &str, [i64; 3])] = &[
    ("groq", "gpt-oss-120b", [150_000, 75_000, 600_000]),
    ("groq", "gpt-oss-20b", [75_000, 37_500, 300_000]),
    ("groq", "qwen3.8-27b", [800_000, 800_000, 4_000_000]),
    ("cerebras", "gpt-oss-120b", [350_000, 350_000, 750_000]),
    ("cerebras", "qwen3.8-27b", [990_000, 990_000, 1_490_000]),
    ("mistral", "mistral-medium-3-5", [1_500_000, 150_000, 7_500_000]),
    ("mistral", "mistral-small-2603", [150_000, 15_000, 600_000]),
    ("mistral", "mistral-large-2512", [500_000, 50_000, 1_500_000]),
    ("xai", "grok-4.7", [2_000_000, 500_000, 6_000_000]),
    ("xai", "grok-4.6", [2_000_000, 500_000, 6_000_000]),
    ("xai", "grok-4.3", [1_250_000, 200_000, 2_500_000]),
    ("openrouter", "kimi-k3", [3_000_000, 300_000, 15_000_000]),
    ("openrouter", "glm-5.3", [1_400_000, 260_000, 4_400_000]),
    ("openrouter", "deepseek-v4.1-flash", [300_000, 6_000, 1_200_000]),
    ("openrouter", "gpt-oss-120b", [150_000, 75_000, 600_000]),
    ("together", "kimi-k3", [3_000_000, 300_000, 15_000_000]),
    ("together", "glm-5.3", [1_400_000, 260_000, 4_400_000]),
    ("together", "deepseek-v4.1-flash", [300_000, 6_000, 1_200_000]),
    ("together", "gpt-oss-120b", [150_000, 150_000, 600_000]),
    ("fireworks", "kimi-k3", [3_000_000, 300_000, 15_000_000]),
    ("fireworks", "glm-5.3", [1_400_000, 260_000, 4_400_000]),
    ("fireworks", "deepseek-v4.1-flash", [300_000, 6_000, 1_200_000]),
];

#[test]
fn the_prices_of_a_host_are_those_of_the_sources() {
    let list = PriceList::shipped().unwrap();
    let none = Usage::default();
    for (provider, name, [input, read, output]) in HOSTS.iter().copied() {
        let price = list.find(name, provider).unwrap();
        #[rustfmt::skip]
        let parts = [
            (Usage { input_uncached: 1000, ..none }, input),
            (Usage { cache_write_short: 1000, ..none }, input),
            (Usage { cache_write_long: 1000, ..none }, input),
            (Usage { cache_read: 1000, ..none }, read),
            (Usage { output_text: 1000, ..none }, output),
            (Usage { output_reasoning: 1000, ..none }, output),
        ];
        for (part, nano) in parts {
            assert_eq!(nanos(price, part), nano, "{name} at {provider} {part:?}");
        }
    }
    for (name, provider, _) in list.iter().filter(|(_, provider, _)| provider.is_some()) {
        let is_known = HOSTS.iter().any(|known| known.1 == name && Some(known.0) == provider);
        assert!(is_known, "{name} at {provider:?}");
    }
}

#[test]
fn the_shipped_prices_are_those_of_the_sources() {
    let none = Usage::default();
    for (name, [input, short, long, read, output]) in SOURCES.iter().copied() {
        let price = shipped(name);
        let image = if name == "gemini-3-pro-image" {
            120_000_000
        } else {
            output
        };
        #[rustfmt::skip]
        let parts = [
            (Usage { input_uncached: 1000, ..none }, input),
            (Usage { cache_write_short: 1000, ..none }, short),
            (Usage { cache_write_long: 1000, ..none }, long),
            (Usage { cache_read: 1000, ..none }, read),
            (Usage { output_text: 1000, ..none }, output),
            (Usage { output_reasoning: 1000, ..none }, output),
            (Usage { output_image: 1000, ..none }, image),
            (Usage { output_audio: 1000, ..none }, output),
            (Usage { input_audio: 1000, ..none }, input),
            (Usage { input_image: 1000, ..none }, input),
            (Usage { cache_read_audio: 1000, ..none }, read),
            (Usage { cache_read_image: 1000, ..none }, read),
            (Usage { tool_input: 1000, ..none }, input),
            (THOUSANDS, input + short + long + read + 2 * output),
        ];
        for (part, nano) in parts {
            assert_eq!(nanos(&price, part), nano, "{name} {part:?}");
        }
    }
}

#[test]
fn the_highest_tier_that_matches_prices_the_whole_request() {
    // Name, the tier's threshold, and nano-USD of 1000 tokens of output below and above it.
    for (name, threshold, below, above) in [
        ("claude-haiku-5-5", 100_000, 500_000, 2_500_000),
        ("gpt-6-astra", 272_000, 50_000_000, 75_000_000),
        ("gpt-6.1-sol", 272_000, 10_000_000, 15_000_000),
        ("gpt-6-luna", 272_000, 500_000, 750_000),
        ("gpt-5.6-sol", 272_000, 20_000_000, 30_000_000),
        ("gpt-5.5", 272_000, 30_000_000, 45_000_000),
        ("gemini-3.1-pro-preview", 200_000, 12_000_000, 18_000_000),
        ("MiniMax-M3", 512_000, 1_200_000, 2_400_000),
        ("qwen3.7-plus", 256_000, 1_600_000, 4_800_000),
        // xAI has its higher prices from 200,000 tokens on.
        ("grok-4.7", 199_999, 6_000_000, 12_000_000),
        ("grok-4.6", 199_999, 6_000_000, 12_000_000),
        ("grok-4.3", 199_999, 2_500_000, 5_000_000),
    ] {
        let price = shipped(name);
        let output = |input_total: u64| {
            let prompt = Usage {
                cache_read: input_total - 1,
                input_uncached: 1,
                ..Usage::default()
            };
            let with_output = Usage {
                output_text: 1000,
                ..prompt
            };
            nanos(&price, with_output) - nanos(&price, prompt)
        };
        // What is cached counts for the threshold; the threshold itself is still below.
        assert_eq!((output(threshold), output(threshold + 1)), (below, above), "{name}");
    }
    let haiku = shipped("claude-haiku-5-5");
    let all = |input| {
        nanos(
            &haiku,
            Usage {
                input_uncached: input,
                ..Usage::default()
            },
        )
    };
    assert_eq!(all(100_000), 10_000_000, "100,000 tokens at 0.1");
    assert_eq!(all(100_001), 50_000_500, "100,001 tokens at 0.5");
    let astra = shipped("gpt-6-astra");
    let cached = Usage {
        cache_read: 272_001,
        ..Usage::default()
    };
    assert_eq!(nanos(&astra, cached), 544_002_000, "272,001 tokens at 2");
}
