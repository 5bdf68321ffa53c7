//! Tests of `route`.

use super::*;
use crate::domain::catalogue::{CatalogueSettings, RawModel, tests::with_secrets};

fn catalogue(there: &[&str]) -> Catalogue {
    let models = vec![RawModel {
        name: "either".to_owned(),
        providers: vec!["anthropic".to_owned(), "deepseek".to_owned()],
        upstream_name: Some("up/stream".to_owned()),
        price: Some("claude-haiku-4-5".to_owned()),
        ..RawModel::default()
    }];
    with_secrets(
        there,
        &CatalogueSettings {
            models,
            ..CatalogueSettings::default()
        },
    )
    .0
}

fn none_disabled(_: &str) -> bool {
    false
}

const ALL: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "DEEPSEEK_API_KEY",
];

#[test]
fn each_operation_finds_its_endpoint() {
    let catalogue = catalogue(ALL);
    for (operation, model, url) in [
        (Operation::Messages, "claude-opus-5-5", "api.anthropic.com/v1/messages"),
        (
            Operation::CountTokens,
            "claude-opus-5-5",
            "api.anthropic.com/v1/messages/count_tokens",
        ),
        (
            Operation::Messages,
            "deepseek-flash",
            "api.deepseek.com/anthropic/v1/messages",
        ),
        (Operation::Responses, "gpt-6-luna", "api.openai.com/v1/responses"),
        (
            Operation::StreamGenerateContent,
            "gemini-3.8-flash",
            "generativelanguage.googleapis.com/v1beta/models/gemini-3.8-flash:streamGenerateContent",
        ),
        (
            Operation::GeminiCountTokens,
            "gemini-3.8-flash",
            "generativelanguage.googleapis.com/v1beta/models/gemini-3.8-flash:countTokens",
        ),
    ] {
        let route = route(&catalogue, operation, model, none_disabled).unwrap();
        let [leg] = route.legs.as_slice() else {
            panic!("{route:?}")
        };
        let places = leg.provider.origins_of(operation);
        let [place] = places.as_slice() else {
            panic!("{places:?}")
        };
        assert_eq!(format!("{}{}", place.origin.host, leg.target), url);
        assert_eq!((place.origin.https, place.origin.port), (true, 443));
        assert_eq!((leg.upstream_model.as_str(), route.model.name.as_str()), (model, model));
    }
}

#[test]
fn the_first_provider_that_is_on_and_has_the_endpoint_serves() {
    let provider = |there: &[&str], operation| {
        route(&catalogue(there), operation, "either", none_disabled).map(|route| {
            (
                route.legs[0].provider.name.clone(),
                route.legs[0].upstream_model.clone(),
            )
        })
    };
    let by = |name: &str| Ok((name.to_owned(), "up/stream".to_owned()));
    assert_eq!(provider(ALL, Operation::Messages), by("anthropic"));
    assert_eq!(provider(&["DEEPSEEK_API_KEY"], Operation::Messages), by("deepseek"));
    assert_eq!(
        provider(&["DEEPSEEK_API_KEY"], Operation::CountTokens),
        Err(RouteError::CountTokensUnsupported)
    );
    assert_eq!(
        provider(&["OPENAI_API_KEY"], Operation::Messages),
        Err(RouteError::ProviderOff)
    );
}

#[test]
fn what_cannot_be_served_says_why() {
    let catalogue = catalogue(ALL);
    let error = |operation, model: &str| route(&catalogue, operation, model, none_disabled).unwrap_err();
    assert_eq!(error(Operation::Messages, "nobody"), RouteError::ModelUnknown);
    assert_eq!(
        error(Operation::CountTokens, "deepseek-flash"),
        RouteError::CountTokensUnsupported
    );
    let messages = RouteError::ModelNotServed {
        protocols: vec![Protocol::Messages],
    };
    assert_eq!(error(Operation::Responses, "claude-opus-5-5"), messages);
    assert_eq!(error(Operation::GeminiCountTokens, "claude-opus-5-5"), messages);
    let responses = RouteError::ModelNotServed {
        protocols: vec![Protocol::Responses],
    };
    assert_eq!(error(Operation::CountTokens, "gpt-6-luna"), responses);
}

#[test]
fn alternatives_follow_in_order_and_disabled_ones_drop_out() {
    let catalogue = catalogue(ALL);
    let names = |disabled: &[&str]| {
        route(&catalogue, Operation::Messages, "either", |name| {
            disabled.contains(&name)
        })
        .map(|route| {
            route
                .legs
                .iter()
                .map(|leg| leg.provider.name.clone())
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(names(&[]).unwrap(), ["anthropic", "deepseek"]);
    let route = route(&catalogue, Operation::Messages, "either", none_disabled).unwrap();
    assert!(route.legs.iter().all(|leg| leg.price.version() != "free"));
    assert_eq!(names(&["anthropic"]).unwrap(), ["deepseek"]);
    assert_eq!(names(&["anthropic", "deepseek"]), Err(RouteError::ProviderOff));
}
