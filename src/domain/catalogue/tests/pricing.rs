//! Every model that can be served has a price at whoever serves it.

use super::*;
use crate::domain::{ledger::consumption::PriceModifiers, wire::usage::Usage};

fn with_prices(own: &str, settings: &CatalogueSettings) -> Result<(Catalogue, Vec<CatalogueWarning>), String> {
    let own = PriceList::read("prices.toml", &format!("version = \"mine\"\n{own}")).unwrap();
    let secrets = |secret: &SecretRef| match secret {
        SecretRef::Env(name) if name.contains("OPENAI") || name.contains("DEEPSEEK") => {
            Ok(Some(Secret::new("secret-of-a-provider")))
        }
        SecretRef::Env(_) | SecretRef::File(_) | SecretRef::Credential(_) => Ok(None),
    };
    let list = PriceList::shipped().unwrap().extended_by(own);
    let built = Catalogue::build(&shipped(), settings, &list, &secrets);
    built.map_err(|errors| errors.iter().map(|error| format!("{error}\n")).collect())
}

fn model(name: &str, providers: &[&str], price: Option<&str>, free: bool) -> CatalogueSettings {
    let model = RawModel {
        price: price.map(str::to_owned),
        free,
        ..settings_model(name, providers)
    };
    CatalogueSettings {
        models: vec![model],
        ..CatalogueSettings::default()
    }
}

fn entry(name: &str, more: &str, output: &str) -> String {
    format!("[[price]]\nname = \"{name}\"\n{more}\ntiers = [{{ input = \"1\", output = \"{output}\" }}]\n")
}

#[test]
fn a_model_without_a_price_is_refused_with_what_to_write() {
    let error = with_prices("", &model("new", &["openai"], None, false)).unwrap_err();
    assert_eq!(
        error,
        "weir.toml: [[model]] number 1: model `new` has no price at `openai`: add a [[price]] with name = \"new\" to the file of \
         `[prices] file`, or `free = true` to the [[model]]\n"
    );
    let error = with_prices("", &model("new", &["openai"], Some("gpt-6-lunar"), false)).unwrap_err();
    assert!(
        error.contains("name = \"gpt-6-lunar\"") && error.ends_with("did you mean `gpt-6-luna`?\n"),
        "{error}"
    );
    let error = with_prices("", &model("new", &["openai"], Some("gpt-6-luna"), true)).unwrap_err();
    assert!(error.contains("not both"), "{error}");
    for settings in [
        model("new", &["openai"], None, true),
        model("new", &["openai"], Some("gpt-6-luna"), false),
        model("new", &["gemini"], None, false),
    ] {
        assert!(
            with_prices("", &settings).is_ok(),
            "free, priced by another name, or of a provider that is off"
        );
    }
    assert!(with_prices(&entry("new", "", "1"), &model("new", &["openai"], None, false)).is_ok());
}

#[test]
fn every_provider_that_is_on_needs_a_price_and_may_have_its_own() {
    let both = model("new", &["openai", "deepseek", "gemini"], None, false);
    let only = entry("new", "provider = \"openai\"", "1");
    let error = with_prices(&only, &both).unwrap_err();
    assert!(error.contains("no price at `deepseek`:"), "{error}");
    let (catalogue, warnings) = with_prices(&(only + &entry("new", "", "2")), &both).unwrap();
    let model = catalogue.find("new").unwrap();
    let usage = Usage {
        output_text: 1000,
        ..Usage::default()
    };
    let costs: Vec<(&str, i64)> = model
        .prices
        .iter()
        .map(|(provider, price)| {
            (
                provider.as_str(),
                price.cost(&usage, &PriceModifiers::default()).nanos(),
            )
        })
        .collect();
    assert_eq!(costs, [("deepseek", 2_000_000), ("openai", 1_000_000)]);
    assert!(
        !warnings
            .iter()
            .any(|warning| matches!(warning, CatalogueWarning::PriceUnused { .. }))
    );
}

#[test]
fn all_models_without_a_price_are_named_with_their_files() {
    let secrets = |_: &SecretRef| Ok(Some(Secret::new("secret-of-a-provider")));
    let built = Catalogue::build(
        &shipped(),
        &CatalogueSettings::default(),
        &PriceList::default(),
        &secrets,
    );
    let errors = built.unwrap_err();
    assert!(
        errors.len() > 20
            && errors
                .iter()
                .all(|error| error.line.is_some() && error.key.as_deref() == Some("price"))
    );
}

#[test]
fn a_price_that_no_model_has_is_told_of() {
    let own =
        entry("gpt-6-lunar", "", "1") + &entry("gpt-6-luna", "provider = \"opnai\"", "1") + &entry("gpt-5.5", "", "1");
    let (_, warnings) = with_prices(&own, &CatalogueSettings::default()).unwrap();
    let unused: Vec<String> = warnings
        .iter()
        .filter(|warning| matches!(warning, CatalogueWarning::PriceUnused { .. }))
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        unused,
        [
            "prices.toml:6: the price `gpt-6-luna` for provider `opnai` is not used by any model: check its name",
            "prices.toml:2: the price `gpt-6-lunar` is not used by any model: check its name",
        ]
    );
}

#[test]
fn a_price_that_changed_under_its_version_is_found() {
    let none = CatalogueSettings::default();
    let catalogue = |own: &str| with_prices(own, &none).unwrap().0;
    let before = catalogue(&entry("gpt-5.5", "", "1"));
    assert!(
        catalogue(&entry("gpt-5.5", "", "1"))
            .repriced_under_one_version(&before)
            .is_empty()
    );
    assert_eq!(
        catalogue(&entry("gpt-5.5", "", "2")).repriced_under_one_version(&before),
        ["gpt-5.5"]
    );
    assert!(
        catalogue("").repriced_under_one_version(&before).is_empty(),
        "another version"
    );
}

#[test]
fn a_provider_names_its_models_as_it_likes() {
    let mut settings = model("house", &["openai"], Some("gpt-6-luna"), false);
    settings.models[0].upstream_name = Some("gpt-6-luna-house".to_owned());
    settings.models[0].aliases = vec!["cottage".to_owned()];
    let (catalogue, _) = with_prices("", &settings).unwrap();
    let found = |provider, name| {
        catalogue
            .find_served(provider, name)
            .map(|(model, _)| model.name.as_str())
    };
    for name in ["gpt-6-luna-house", "house", "cottage", "house-20261121"] {
        assert_eq!(found("openai", name), Some("house"), "{name}");
    }
    assert_eq!(found("openai", "gpt-6-luna-2026112"), None);
    assert_eq!(found("openai", "gpt-6-luna-20261121"), Some("gpt-6-luna"));
    assert_eq!(found("deepseek", "house"), None, "it is another provider's");
    assert_eq!(
        found("anthropic", "claude-opus-5-5"),
        None,
        "a provider that is off has no prices"
    );
}

#[test]
fn the_dearest_model_of_a_provider_is_the_dearest_for_what_was_consumed() {
    let own = entry("wide", "", "1").replace("input = \"1\"", "input = \"500\"") + &entry("deep", "", "500");
    let mut settings = model("wide", &["openai"], None, false);
    settings.models.extend(model("deep", &["openai"], None, false).models);
    let (catalogue, _) = with_prices(&own, &settings).unwrap();
    let dearest = |provider, input_uncached, output_text| {
        let usage = Usage {
            input_uncached,
            output_text,
            ..Usage::default()
        };
        let found = catalogue.most_expensive_at(provider, &usage, &PriceModifiers::default());
        found.map(|(model, _)| model.name.as_str())
    };
    assert_eq!(dearest("openai", 1000, 1), Some("wide"));
    assert_eq!(dearest("openai", 1, 1000), Some("deep"));
    assert_eq!(dearest("deepseek", 1, 1), Some("deepseek-v4-pro"));
    assert_eq!(dearest("anthropic", 1, 1), None);
}
