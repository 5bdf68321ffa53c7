//! Prices of sound and images.

use super::*;

const LIST: &str = "tiers = [{ input = \"1\", output = \"10\", cache_read = \"0.1\", input_audio = \"3\", input_image = \"2\", \
                    cache_read_audio = \"0.3\", cache_read_image = \"0.2\", output_audio = \"20\", output_image = \"120\" }, \
                    { above_input_tokens = 1000, input = \"2\", output = \"15\", input_audio = \"1\" }]\n\
                    service_tier_prices = { flex = [{ input = \"0.5\", output = \"5\", output_image = \"60\" }] }";

fn usage(parts: &[(&str, u64)]) -> Usage {
    serde_json::from_value(parts.iter().map(|(name, count)| (*name, *count)).collect()).unwrap()
}

#[test]
fn each_modality_costs_what_its_tier_says_or_what_it_is_a_part_of() {
    let price = price(LIST);
    let flex = modifiers(Some("flex"), None, None);
    for (part, below, above, in_flex) in [
        ("input_uncached", 1_000, 2_000, 500),
        ("input_audio", 3_000, 1_000, 500),
        ("input_image", 2_000, 2_000, 500),
        ("cache_read", 100, 2_000, 500),
        ("cache_read_audio", 300, 2_000, 500),
        ("cache_read_image", 200, 2_000, 500),
        ("output_text", 10_000, 15_000, 5_000),
        ("output_audio", 20_000, 15_000, 5_000),
        ("output_image", 120_000, 15_000, 60_000),
    ] {
        assert_eq!(nanos(&price, usage(&[(part, 1)])), below, "{part}");
        assert_eq!(price.cost(&usage(&[(part, 1)]), &flex).nanos(), in_flex, "{part}");
        // All parts of the input count for the tier.
        let long = usage(&[("input_audio", 1_001)]);
        let more = long.plus(&usage(&[(part, 1)]));
        assert_eq!(nanos(&price, more) - nanos(&price, long), above, "{part}");
    }
}

#[test]
fn a_request_whose_modalities_are_not_known_may_cost_what_the_dearest_would() {
    let price = price(LIST);
    let dearest = |parts: &[(&str, u64)]| price.maximum_cost(&usage(parts), &PriceModifiers::default()).nanos();
    assert_eq!(
        dearest(&[("input_uncached", 10), ("cache_read", 10), ("output_text", 10)]),
        30_000 + 3_000 + 1_200_000
    );
    assert_eq!(
        dearest(&[("input_uncached", 1_001)]),
        1_001 * 2_000,
        "text is the dearest of this tier"
    );
    assert_eq!(dearest(&[("output_reasoning", 1), ("tool_input", 1)]), 11_000);
    let plain = super::price("tiers = [{ input = \"1\", output = \"10\" }]");
    assert_eq!(
        plain.maximum_cost(&THOUSANDS, &PriceModifiers::default()),
        plain.cost(&THOUSANDS, &PriceModifiers::default())
    );
    assert_eq!(
        Price::free().maximum_cost(&THOUSANDS, &PriceModifiers::default()),
        NanoUsd::ZERO
    );
}

#[test]
fn a_price_of_a_modality_that_is_none_is_named() {
    for key in [
        "input_video = \"1\"",
        "input_audio = 1",
        "output_image = \"-1\"",
        "audio = \"1\"",
    ] {
        let text =
            format!("version = \"v1\"\n[[price]]\nname = \"m\"\ntiers = [{{ input = \"1\", output = \"1\", {key} }}]");
        let errors = PriceList::read("p.toml", &text).unwrap_err();
        let name = key.split(' ').next().unwrap();
        assert!(errors[0].to_string().contains(name), "{errors:?}");
    }
}

#[test]
fn the_lines_of_a_charge_name_each_modality() {
    let price = price(LIST);
    let usage = usage(&[("input_audio", 7), ("output_text", 2), ("output_image", 3)]);
    let lines = price.lines_in_tier(&usage, &PriceModifiers::default(), 0);
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                &*line.counted,
                line.count,
                line.price_usd.as_str(),
                line.cost_usd.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("input_audio", 7, "3", "0.000021"),
            ("output_text", 2, "10", "0.00002"),
            ("output_image", 3, "120", "0.00036"),
        ]
    );
}

#[test]
fn an_image_of_the_shipped_model_costs_what_its_source_says() {
    let image = shipped("gemini-3-pro-image");
    let answer = usage(&[("input_uncached", 20), ("output_image", 1_290)]);
    assert_eq!(nanos(&image, answer), 154_840_000);
    let text = usage(&[("input_uncached", 20), ("output_text", 1_290)]);
    assert_eq!(nanos(&image, text), 15_520_000);
}

proptest! {
    #[test]
    fn a_charge_is_the_sum_of_its_parts_rounded_up_once(counts in proptest::array::uniform9(0..10_000_000_u64)) {
        let names = ["input_uncached", "input_audio", "input_image", "cache_read", "cache_read_audio", "cache_read_image", "output_text",
            "output_audio", "output_image"];
        // Pico-USD per token, of one tier.
        let prices: [u64; 9] = [3, 700, 50, 11, 13, 17, 900, 1_000_001, 123_456_789];
        let tokens = names.iter().zip(prices).map(|(name, pico)| {
            let name = match *name { "input_uncached" => "input", "output_text" => "output", other => other };
            format!("{name} = \"{}.{:06}\"", pico / 1_000_000, pico % 1_000_000)
        });
        let price = price(&format!("tiers = [{{ {} }}]", tokens.collect::<Vec<_>>().join(", ")));
        let parts: Vec<(&str, u64)> = names.into_iter().zip(counts).collect();
        let pico: u128 = counts.iter().zip(prices).map(|(count, price)| u128::from(*count) * u128::from(price)).sum();
        prop_assert_eq!(nanos(&price, usage(&parts)), i64::try_from(pico.div_ceil(1000)).unwrap());
        prop_assert!(price.maximum_cost(&usage(&parts), &PriceModifiers::default()) >= price.cost(&usage(&parts), &PriceModifiers::default()));
    }
}
