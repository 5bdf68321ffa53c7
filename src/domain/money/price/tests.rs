//! Tests of `price`.

use std::sync::Arc;

use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::domain::{ledger::consumption::PriceModifiers, money::NanoUsd, wire::usage::Usage};

mod lists;
mod modalities;
mod parts;
mod shipped;

fn shipped(name: &str) -> Arc<Price> {
    Arc::clone(PriceList::shipped().unwrap().find(name, "any").unwrap())
}

/// A price of an entry's text, its name and version left out.
fn price(text: &str) -> Arc<Price> {
    let text = format!("version = \"v1\"\n[[price]]\nname = \"m\"\n{text}");
    let list = PriceList::read("p.toml", &text).unwrap_or_else(|errors| panic!("{errors:?}"));
    Arc::clone(list.find("m", "any").unwrap())
}

fn nanos(price: &Price, usage: Usage) -> i64 {
    price.cost(&usage, &PriceModifiers::default()).nanos()
}

fn modifiers(service_tier: Option<&str>, speed: Option<&str>, geo: Option<&str>) -> PriceModifiers {
    PriceModifiers {
        service_tier: service_tier.map(str::to_owned).map(SmolStr::from),
        speed: speed.map(str::to_owned).map(SmolStr::from),
        geo: geo.map(str::to_owned).map(SmolStr::from),
    }
}

/// A thousand tokens of each part, but for the prompt's tool input, sound and images.
const THOUSANDS: Usage = Usage {
    input_uncached: 1000,
    cache_read: 1000,
    cache_write_short: 1000,
    cache_write_long: 1000,
    output_text: 1000,
    output_reasoning: 1000,
    ..Usage::from_parts([0; Usage::NAMES.len()])
};

#[test]
fn a_request_is_rounded_up_once() {
    // 0.0003 USD per 1M tokens are 300 pico-USD per token.
    let price = price("tiers = [{ input = \"0.0003\", output = \"0.0003\", cache_read = \"0.0004\" }]");
    for (input, output, read, nano) in [
        (0, 0, 0, 0),
        (1, 0, 0, 1),
        (3, 0, 0, 1),
        (3, 1, 0, 2),
        (1, 1, 1, 1),
        (5, 5, 0, 3),
        (5, 5, 1, 4),
    ] {
        let usage = Usage {
            input_uncached: input,
            output_text: output,
            cache_read: read,
            ..Usage::default()
        };
        assert_eq!(nanos(&price, usage), nano, "{usage:?}");
    }
}

#[test]
fn multipliers_are_exact_and_only_for_tokens() {
    let opus = shipped("claude-opus-5-5");
    let usage = Usage {
        input_uncached: 1000,
        web_searches: 3,
        ..Usage::default()
    };
    let cost = |speed, geo| opus.cost(&usage, &modifiers(Some("standard"), speed, geo)).nanos();
    assert_eq!(cost(None, None), 34_000_000);
    assert_eq!(cost(Some("fast"), None), 38_000_000);
    assert_eq!(cost(None, Some("us")), 34_400_000);
    assert_eq!(cost(Some("fast"), Some("us")), 38_800_000);
    assert_eq!(cost(Some("FAST"), Some("US")), 38_800_000, "case does not matter");
    assert_eq!(
        cost(Some("standard"), Some("mars")),
        34_000_000,
        "what is unknown changes nothing"
    );
    let astra = shipped("gpt-6-astra");
    let tier = |name| astra.cost(&THOUSANDS, &modifiers(Some(name), None, None)).nanos();
    assert_eq!(tier("default"), 148_500_000);
    assert_eq!(
        (tier("flex"), tier("priority"), tier("ultrafast")),
        (74_250_000, 297_000_000, 891_000_000)
    );
    let pro = shipped("gemini-3.1-pro-preview");
    let tier = |name| {
        pro.cost(
            &Usage {
                output_text: 1,
                ..Usage::default()
            },
            &modifiers(Some(name), None, None),
        )
        .nanos()
    };
    assert_eq!(
        (tier("standard"), tier("priority"), tier("ON_DEMAND_PRIORITY")),
        (12_000, 21_600, 21_600)
    );
    // 1 pico-USD times 1.1 times 1.000001: a fraction of a pico-USD counts until the end.
    let fine = price(
        "tiers = [{ input = \"0.000001\", output = \"0\" }]\nmultipliers = { speed = { a = \"1.1\" }, geo = { b = \"1.000001\" } }",
    );
    let cost = |input| {
        fine.cost(
            &Usage {
                input_uncached: input,
                ..Usage::default()
            },
            &modifiers(None, Some("a"), Some("b")),
        )
        .nanos()
    };
    assert_eq!(
        (cost(909), cost(910), cost(909_090_909), cost(1_000_000_000)),
        (1, 2, 1_000_001, 1_100_002)
    );
}

#[test]
fn a_service_tier_may_have_prices_of_its_own() {
    let price = price(
        "tiers = [{ input = \"1\", output = \"2\" }]\nreasoning = \"3\"\ntool_input = \"4\"\n\
         multipliers = { service_tier = { flex = \"0.5\" }, speed = { fast = \"2\" } }\n\
         service_tier_prices = { priority = [{ input = \"10\", output = \"20\" }, { above_input_tokens = 1000, input = \"100\", output = \"200\" }] }",
    );
    let usage = Usage {
        input_uncached: 900,
        tool_input: 100,
        output_text: 1,
        output_reasoning: 1,
        ..Usage::default()
    };
    let cost = |tier, speed, usage: &Usage| price.cost(usage, &modifiers(tier, speed, None)).nanos();
    assert_eq!(cost(None, None, &usage), 900_000 + 400_000 + 2_000 + 3_000);
    assert_eq!(cost(Some("flex"), None, &usage), 652_500);
    assert_eq!(
        cost(Some("priority"), None, &usage),
        10_000_000 + 40_000,
        "with none of the special prices"
    );
    assert_eq!(cost(Some("Priority"), Some("fast"), &usage), 20_080_000);
    let longer = Usage {
        input_uncached: 901,
        ..usage
    };
    assert_eq!(cost(Some("priority"), None, &longer), 100_100_000 + 400_000);
}

#[test]
fn calls_are_paid_by_call() {
    let price = price(
        "tiers = [{ input = \"0\", output = \"0\" }]\nper_call = { web_search = \"0.01\", web_fetch = \"0.000000000001\", file_search = \"0.0025\", code_interpreter = \"0.03\", image_generation = \"0.04\", request = \"0.5\" }",
    );
    assert_eq!(nanos(&price, Usage::default()), 0, "nothing was consumed");
    assert_eq!(
        nanos(
            &price,
            Usage {
                output_text: 1,
                ..Usage::default()
            }
        ),
        500_000_000
    );
    let usage = Usage {
        web_searches: 2,
        web_fetches: 1,
        ..Usage::default()
    };
    assert_eq!(nanos(&price, usage), 520_000_001);
    let usage = Usage {
        file_searches: 4,
        code_interpreter_calls: 2,
        image_generations: 1,
        ..Usage::default()
    };
    assert_eq!(nanos(&price, usage), 500_000_000 + 10_000_000 + 60_000_000 + 40_000_000);
}

#[test]
fn what_is_free_costs_nothing_and_says_so() {
    let free = Price::free();
    assert_eq!((free.version(), nanos(&free, THOUSANDS)), ("free", 0));
    assert_eq!(serde_json::to_string(&free).unwrap(), r#"{"version":"free"}"#);
}

#[test]
fn the_dearest_request_costs_the_most_there_is() {
    let dearest = price(
        "tiers = [{ input = \"1000000\", output = \"1000000\" }]\nper_call = { web_search = \"1000000\", web_fetch = \"1000000\", file_search = \"1000000\", code_interpreter = \"1000000\", image_generation = \"1000000\", request = \"1000000\" }\n\
         multipliers = { service_tier = { x = \"1000\" }, speed = { x = \"1000\" }, geo = { x = \"1000\" } }",
    );
    let most = u64::MAX;
    let usage = Usage::from_parts([most; Usage::NAMES.len()]);
    assert_eq!(
        dearest.cost(&usage, &modifiers(Some("x"), Some("x"), Some("x"))),
        NanoUsd::MAX
    );
    assert_eq!(dearest.cost(&usage, &PriceModifiers::default()), NanoUsd::MAX);
    // A large sum and a small price: as exact as any other.
    let cheap = price("tiers = [{ input = \"0.000001\", output = \"0\" }]");
    assert_eq!(
        nanos(
            &cheap,
            Usage {
                input_uncached: 1 << 53,
                ..Usage::default()
            }
        ),
        9_007_199_254_741
    );
}

/// As [`Price::cost`] should be, by a way of its own: fractions over 10^18 as pairs of whole and rest.
fn expected(input: u64, output: u64, prices: [u64; 2], factors: [u64; 2]) -> i64 {
    let pico = u128::from(input) * u128::from(prices[0]) + u128::from(output) * u128::from(prices[1]);
    let times = pico * u128::from(factors[0]) * u128::from(factors[1]);
    i64::try_from(times.div_ceil(1000 * 1_000_000_000_000)).unwrap()
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(1 << 53), any::<u64>(), 0..10_000_000_u64]
}

proptest! {
    #[test]
    fn no_usage_panics_or_leaves_the_limits(counts in proptest::array::uniform18(count()), at in 0_usize..30, tier in "\\PC{0,9}") {
        let list = PriceList::shipped().unwrap();
        let (_, _, entry) = list.iter().nth(at % list.iter().count()).unwrap();
        let usage = Usage::from_parts(counts);
        for modifiers in [PriceModifiers::default(), modifiers(Some("priority"), Some("fast"), Some("us")), modifiers(Some(&tier), None, None)] {
            let cost = entry.price.cost(&usage, &modifiers);
            prop_assert!((NanoUsd::ZERO..=NanoUsd::MAX).contains(&cost));
            // More output never costs less.
            let more = Usage { output_text: usage.output_text.saturating_add(1000), ..usage };
            prop_assert!(entry.price.cost(&more, &modifiers) >= cost);
        }
    }

    #[test]
    fn the_sum_is_exact(input in 0..10_000_000_u64, output in 1..10_000_000_u64, prices in proptest::array::uniform2(0..100_000_000_u64), factors in proptest::array::uniform2(0..10_000_000_u64)) {
        let decimal = |millionths: u64| format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
        let price = price(&format!(
            "tiers = [{{ input = \"{}\", output = \"{}\" }}]\nmultipliers = {{ speed = {{ s = \"{}\" }}, geo = {{ g = \"{}\" }} }}",
            decimal(prices[0]), decimal(prices[1]), decimal(factors[0]), decimal(factors[1])
        ));
        let usage = Usage { input_uncached: input, output_text: output, ..Usage::default() };
        prop_assert_eq!(price.cost(&usage, &modifiers(None, Some("s"), Some("g"))).nanos(), expected(input, output, prices, factors));
    }
}
