//! Tests of prices of several parts.

use proptest::prelude::*;

use crate::domain::money::price::PriceList;
use crate::domain::money::price::*;

const LIST: &str = "version = \"v1\"\n\
    [[price]]\nname = \"small\"\ntiers = [{ input = \"0.0003\", output = \"1\" }, { above_input_tokens = 100, input = \"3\", output = \"6\" }]\n\
    per_call = { web_search = \"0.01\", request = \"0.5\" }\nmultipliers = { speed = { fast = \"2\" }, geo = { us = \"1.1\" } }\n\
    [[price]]\nname = \"large\"\ntiers = [{ input = \"10\", output = \"50\" }]\n\
    per_call = { request = \"9\" }\nmultipliers = { speed = { fast = \"3\" }, geo = { us = \"1.5\" } }";

fn find(name: &str) -> Option<Arc<Price>> {
    let list = PriceList::read("p.toml", LIST).unwrap();
    list.find(name, "p").map(Arc::clone)
}

fn usage(input_uncached: u64, output_text: u64) -> Usage {
    Usage {
        input_uncached,
        output_text,
        ..Usage::default()
    }
}

fn run(kind: RunKind, model: Option<&str>, usage: Usage) -> PricedRun {
    PricedRun {
        run: Run {
            kind,
            model: model.map(str::to_owned),
            usage,
        },
        other: model.map(|name| OtherModel {
            name: name.to_owned(),
            priced_as: None,
            price: find(name).unwrap(),
        }),
    }
}

fn charged(modifiers: &PriceModifiers, runs: &[PricedRun]) -> (Usage, Charge) {
    let all: Vec<Run> = runs.iter().map(|priced| priced.run.clone()).collect();
    let usage = crate::domain::wire::usage::total_usage(&all);
    (usage, charge("small", &find("small").unwrap(), &usage, modifiers, runs))
}

fn fast_in_us() -> PriceModifiers {
    PriceModifiers {
        speed: Some("fast".into()),
        geo: Some("us".into()),
        ..PriceModifiers::default()
    }
}

#[test]
fn each_model_has_its_own_price_and_the_request_has_one_fee() {
    let runs = [
        run(RunKind::Answer, None, usage(50, 10)),
        run(RunKind::Advisor, Some("large"), usage(1000, 100)),
        run(RunKind::Answer, None, usage(60, 20)),
    ];
    let (_, charge) = charged(&PriceModifiers::default(), &runs);
    // 110 tokens at 300 pico-USD and 30 at a million, then the advisor's; the fee of the model that was asked for.
    let own = 500_000_000 + 33 + 30_000;
    let advice = 10_000_000 + 5_000_000;
    assert_eq!(charge.cost.nanos(), own + advice);
    let shares: Vec<_> = charge
        .parts
        .iter()
        .map(|part| (part.run, part.model.as_str(), part.usage, part.cost_nano_usd.nanos()))
        .collect();
    assert_eq!(
        shares,
        [
            (RunKind::Answer, "small", usage(110, 30), own),
            (RunKind::Advisor, "large", usage(1000, 100), advice),
        ]
    );
}

#[test]
fn each_run_is_in_the_tier_of_its_own_prompt() {
    let runs = |large: u64| {
        [
            run(RunKind::Answer, None, usage(60, 0)),
            run(RunKind::Answer, None, usage(large, 0)),
        ]
    };
    // No prompt is of more than 100 tokens, although both together are.
    let (_, short) = charged(&PriceModifiers::default(), &runs(70));
    assert_eq!(short.cost.nanos(), 500_000_000 + 39);
    assert_eq!((short.parts.len(), short.parts[0].above_input_tokens), (1, 0));
    let (_, long) = charged(&PriceModifiers::default(), &runs(101));
    assert_eq!(long.cost.nanos(), 500_000_000 + 18 + 303_000);
    assert_eq!((long.parts.len(), long.parts[1].above_input_tokens), (2, 100));
    // All in one tier, and of one model: nothing to say.
    let (usage, plain) = charged(&PriceModifiers::default(), &runs(20));
    assert!(plain.parts.is_empty());
    assert_eq!(
        plain.cost,
        find("small").unwrap().cost(&usage, &PriceModifiers::default())
    );
}

#[test]
fn an_advisor_pays_for_the_place_and_not_for_the_speed() {
    let runs = [
        run(RunKind::Answer, None, usage(0, 100)),
        run(RunKind::Advisor, Some("large"), usage(0, 100)),
        run(RunKind::Fallback, Some("large"), usage(0, 100)),
    ];
    let (_, charge) = charged(&fast_in_us(), &runs);
    let costs: Vec<i64> = charge.parts.iter().map(|part| part.cost_nano_usd.nanos()).collect();
    assert_eq!(costs, [500_000_000 + 220_000, 7_500_000, 22_500_000]);
}

#[test]
fn a_row_has_few_parts_and_what_is_more_is_charged_at_the_dearest_of_them() {
    let kinds = [RunKind::Answer, RunKind::Compaction];
    let mut runs: Vec<PricedRun> = kinds
        .into_iter()
        .flat_map(|kind| [usage(1, 0), usage(101, 0)].map(|usage| run(kind, None, usage)))
        .collect();
    assert_eq!(runs.len(), PARTS_MAX);
    runs.push(run(RunKind::Advisor, Some("large"), usage(1, 1)));
    runs.push(run(RunKind::Answer, None, usage(2, 0)));
    let (usage, charge) = charged(&PriceModifiers::default(), &runs);
    assert_eq!(charge.parts.len(), PARTS_MAX);
    let kept = charge.parts.iter().map(|part| part.usage);
    assert_eq!(kept.fold(Usage::default(), |sum, part| sum.plus(&part)), usage);
    assert_eq!(
        charge.parts[0].usage.input_uncached, 3,
        "of a part that is there already"
    );
    // 4 tokens at 300 pico-USD, 203 input tokens and one of output of the upper tier.
    assert_eq!(charge.cost.nanos(), 500_000_000 + 2 + 609_000 + 6_000);
}

#[test]
fn a_part_is_written_with_what_it_has() {
    let (_, charge) = charged(
        &PriceModifiers::default(),
        &[run(RunKind::Fallback, Some("large"), usage(1, 0))],
    );
    assert_eq!(
        serde_json::to_string(&charge.parts).unwrap(),
        r#"[{"run":"fallback","model":"large","input_uncached":1,"cost_nano_usd":500010000}]"#
    );
}

fn any_run() -> impl Strategy<Value = PricedRun> {
    let kinds = prop_oneof![
        Just((RunKind::Answer, None)),
        Just((RunKind::Compaction, None)),
        Just((RunKind::Advisor, Some("large"))),
        Just((RunKind::Fallback, Some("large"))),
        Just((RunKind::Fallback, Some("small"))),
    ];
    (kinds, 0..300_u64, 0..300_u64, 0..3_u64).prop_map(|((kind, model), input, output, web_searches)| {
        let usage = Usage {
            web_searches,
            ..usage(input, output)
        };
        run(kind, model, usage)
    })
}

proptest! {
    #[test]
    fn the_parts_make_the_charge_and_the_charge_can_be_computed_again(runs in prop::collection::vec(any_run(), 1..9), fast: bool) {
        let modifiers = if fast { fast_in_us() } else { PriceModifiers::default() };
        let (usage, charge) = charged(&modifiers, &runs);
        let price = find("small").unwrap();
        if charge.parts.is_empty() {
            prop_assert_eq!(charge.cost, price.cost(&usage, &modifiers));
        } else {
            let shares = charge.parts.iter().map(|part| part.cost_nano_usd.nanos()).sum::<i64>();
            prop_assert_eq!(shares, charge.cost.nanos());
            let kept = serde_json::to_string(&charge.parts).unwrap();
            let parts: Vec<CostShare> = serde_json::from_str(&kept).unwrap();
            prop_assert_eq!(&parts, &charge.parts);
            prop_assert_eq!(recomputed(&price, &usage, &modifiers, &parts, find), Some(charge.cost));
        }
        prop_assert!(charge.parts.len() <= PARTS_MAX);
    }
}
