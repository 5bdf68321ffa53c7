//! How price lists are read, put together and searched.

use super::*;
use crate::domain::rules::{RuleFile, compile::compile, shipped as shipped_files};

fn faults(text: &str) -> Vec<String> {
    let errors = PriceList::read("p.toml", text).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

const VARIANT: &str = include_str!("../../../../../lua-free-rules/variants/deepseek-2026-10.toml");

#[test]
fn every_model_that_is_shipped_has_a_price() {
    let list = PriceList::shipped().unwrap_or_else(|errors| panic!("{errors:?}"));
    let variant = RuleFile {
        name: "variants/deepseek-2026-10.toml".to_owned(),
        text: VARIANT.to_owned(),
    };
    for file in shipped_files().into_iter().chain([variant]) {
        let compiled = compile(&file).unwrap();
        for (_, model) in &compiled.models {
            let name = model.price.as_ref().unwrap_or(&model.name);
            let priced = list.find(name, &compiled.provider.name).is_some();
            assert!(priced || model.free, "{} has no price", model.name);
        }
    }
}

#[test]
fn a_charge_can_be_computed_again_from_the_list_of_its_version() {
    let list = PriceList::shipped().unwrap();
    let charged = list.find("claude-opus-5-5", "anthropic").unwrap();
    let row = (
        charged.version().to_owned(),
        THOUSANDS,
        modifiers(None, Some("fast"), None),
    );
    let cost = charged.cost(&row.1, &row.2);
    let kept = serde_json::to_string(&(&row.1, &row.2)).unwrap();
    let (usage, modifiers): (Usage, PriceModifiers) = serde_json::from_str(&kept).unwrap();
    let again = PriceList::shipped().unwrap();
    let price = again.find("claude-opus-5-5", "anthropic").unwrap();
    assert_eq!(
        (price.version(), price.cost(&usage, &modifiers)),
        (row.0.as_str(), cost)
    );
    assert_eq!(
        cost.nanos(),
        2 * (4_000_000 + 200_000 + 5_000_000 + 8_000_000 + 40_000_000)
    );
}

#[test]
fn an_own_list_replaces_by_name_and_provider() {
    let own = "version = \"mine-3\"\n\
        [[price]]\nname = \"gpt-5.5\"\ntiers = [{ input = \"1\", output = \"1\" }]\n\
        [[price]]\nname = \"gpt-6-luna\"\nprovider = \"reseller\"\ntiers = [{ input = \"2\", output = \"2\" }]\n";
    let shipped = PriceList::shipped().unwrap();
    let both = shipped.clone().extended_by(PriceList::read("own.toml", own).unwrap());
    let version = |name, provider| both.find(name, provider).map(|price| price.version());
    let shipped_version = shipped.find("gpt-5.5", "openai").unwrap().version();
    assert_eq!(version("gpt-5.5", "openai"), Some("mine-3"));
    assert_eq!(version("gpt-6-luna", "reseller"), Some("mine-3"));
    assert_eq!(version("gpt-6-luna", "openai"), Some(shipped_version));
    assert_eq!(version("nobody", "openai"), None);
    assert_eq!(both.iter().count(), shipped.iter().count() + 1);
    let (_, _, entry) = both.iter().find(|(name, ..)| *name == "gpt-5.5").unwrap();
    assert_eq!((entry.file.as_str(), entry.line), ("own.toml", 2));
}

#[test]
fn a_float_is_refused_with_file_line_and_key() {
    let list = |tier: &str, more: &str| {
        format!("version = \"v\"\n\n[[price]]\nname = \"m\"\ntiers = [\n  {{ input = \"1\", {tier} }},\n]\n{more}")
    };
    for (tier, more, place) in [
        (
            "output = 1.5",
            "",
            "p.toml:6: price `m`: key `output`: expected a decimal number in quotes",
        ),
        (
            "output = 15",
            "",
            "p.toml:6: price `m`: key `output`: expected a decimal number in quotes",
        ),
        (
            "output = \"1,5\"",
            "",
            "p.toml:6: price `m`: key `output`: expected a decimal number in quotes",
        ),
        (
            "output = \"1\", cache_read = \"0.0000001\"",
            "",
            "p.toml:6: price `m`: key `cache_read`: the number has too many decimal places; give at most 6",
        ),
        (
            "output = \"-1\"",
            "",
            "p.toml:6: price `m`: key `output`: expected a decimal number",
        ),
        (
            "output = \"1\"",
            "reasoning = 3.75",
            "p.toml:8: price `m`: key `reasoning`: expected a decimal number",
        ),
        (
            "output = \"1\"",
            "per_call = { web_search = 0.01 }",
            "p.toml:8: price `m`: key `web_search`: expected a decimal number",
        ),
        (
            "output = \"1\"",
            "multipliers = { geo = { us = 1.1 } }",
            "p.toml:8: price `m`: key `us`: expected a decimal number",
        ),
        (
            "output = \"1\"",
            "[price.multipliers.geo]\nus = \"1001\"",
            "p.toml:9: price `m`: key `us`: the number is too large: give at most 1000",
        ),
    ] {
        let errors = faults(&list(tier, more));
        assert!(errors.len() == 1 && errors[0].starts_with(place), "{place}\n{errors:?}");
    }
}

#[test]
fn every_fault_of_a_list_is_named() {
    let text = "version = \"free\"\n\
        [[price]]\nname = \" a b\"\ntiers = [{ above_input_tokens = 5, input = \"x\", output = \"1\" }]\n\
        [[price]]\nname = \"m\"\ntiers = [{ input = \"1\", output = \"1\" }, { input = \"1\", output = \"1\" }]\n\
        multipliers = { service_tier = { priority = \"2\" } }\n\
        service_tier_prices = { Priority = [{ input = \"1\", output = \"1\" }] }\n\
        [[price]]\nname = \"m\"\ntiers = []\n";
    let errors = faults(text);
    for wanted in [
        "p.toml:1: key `version`: ",
        "p.toml:3: [[price]]: key `name`: ",
        "p.toml:4: [[price]]: key `tiers`: give one tier without `above_input_tokens`",
        "p.toml:4: [[price]]: key `input`: expected a decimal number",
        "p.toml:7: price `m`: key `tiers`: two tiers begin above 0 tokens",
        "p.toml:9: price `m`: key `Priority`: give either prices or a multiplier",
        "p.toml:12: price `m`: key `tiers`: give one tier without `above_input_tokens`",
        "p.toml:10: price `m`: key `name`: this price is already defined in line 5",
    ] {
        assert!(
            errors.iter().any(|error| error.starts_with(wanted)),
            "{wanted}\n{errors:#?}"
        );
    }
    assert_eq!(errors.len(), 8, "{errors:#?}");
}

#[test]
fn unknown_and_missing_keys_are_named() {
    let head = "version = \"v\"\n[[price]]\nname = \"m\"\n";
    for (text, wanted) in [
        (
            "tiers = [{ input = \"1\", output = \"1\", cache_reed = \"1\" }]",
            "p.toml:4: key `cache_reed` is unknown, did you mean `cache_read`?",
        ),
        ("tiers = [{ input = \"1\" }]", "p.toml:4: key `output` is missing"),
        (
            "tiers = [{ input = \"1\", output = \"1\" }]\nmultiplier = {}",
            "p.toml:5: key `multiplier` is unknown, did you mean `multipliers`?",
        ),
        ("", "key `tiers` is missing"),
    ] {
        let errors = faults(&format!("{head}{text}"));
        assert!(errors.len() == 1 && errors[0].contains(wanted), "{wanted}\n{errors:?}");
    }
    assert!(faults("")[0].contains("key `version` is missing"));
}

#[test]
fn a_price_shows_what_holds_with_every_fallback() {
    let price = price(
        "provider = \"any\"\nsource = \"contract\"\ntiers = [{ input = \"0.0036\", output = \"1.50\" }]\nmultipliers = { geo = { us = \"1.10\" } }",
    );
    let shown = serde_json::to_value(&*price).unwrap();
    assert_eq!(
        (&shown["version"], &shown["name"], &shown["provider"]),
        (&"v1".into(), &"m".into(), &"any".into())
    );
    assert_eq!(
        (&shown["tiers"][0]["cache_read"], &shown["tiers"][0]["output"]),
        (&"0.0036".into(), &"1.5".into())
    );
    assert_eq!(
        (&shown["multipliers"]["geo"]["us"], &shown["per_call"]["request"]),
        (&"1.1".into(), &"0".into())
    );
}
