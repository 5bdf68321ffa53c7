//! Tests of endpoints and routes.

use std::time::Duration;

use super::*;
use crate::{
    domain::{
        catalogue::{CatalogueSettings, RawModel, tests::with_secrets},
        wire::protocol::Protocol,
    },
    edges::resolver::{Resolver, ResolverSettings},
};

const ALL: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "DEEPSEEK_API_KEY",
];

/// A configuration with one more model, `either`.
struct World {
    catalogue: Catalogue,
    routes: Routes,
}

impl World {
    /// With these secrets.
    fn new(there: &[&str]) -> Self {
        let models = vec![RawModel {
            name: "either".to_owned(),
            providers: vec!["anthropic".to_owned(), "deepseek".to_owned()],
            upstream_name: Some("up/stream".to_owned()),
            price: Some("claude-haiku-4-5".to_owned()),
            ..RawModel::default()
        }];
        let settings = CatalogueSettings {
            models,
            ..CatalogueSettings::default()
        };
        let (catalogue, _) = with_secrets(there, &settings);
        let resolving = ResolverSettings {
            refresh: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
        };
        let resolver = Arc::new(Resolver::new(Vec::new(), resolving));
        let routes = Routes::prepare(&catalogue, &Pools::build(&catalogue, &resolver, None));
        Self { catalogue, routes }
    }

    fn find(&self, operation: Operation, model: &str, off: &[&str]) -> Result<Arc<Route>, RouteError> {
        let model = self.catalogue.resolve(operation.protocol(), model).unwrap();
        self.routes.find(model, operation, |name| off.contains(&name))
    }
}

fn names(route: &Route) -> Vec<&str> {
    let priced = std::iter::once(&route.prices.first).chain(&route.prices.others);
    let names: Vec<&str> = route.endpoints.iter().map(|one| one.provider.name.as_str()).collect();
    assert_eq!(
        names,
        priced.map(|one| one.provider.as_str()).collect::<Vec<_>>(),
        "prices in the endpoints' order"
    );
    names
}

#[test]
fn each_operation_finds_its_endpoint() {
    let world = World::new(ALL);
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
        let route = world.find(operation, model, &[]).unwrap();
        let [endpoint] = route.endpoints.as_slice() else {
            panic!("{route:?}")
        };
        let places = endpoint.provider.origins_for(operation);
        let [place] = places.as_slice() else {
            panic!("{places:?}")
        };
        let target = endpoint.target.with_query(None).unwrap();
        assert_eq!(format!("{}{target}", place.origin.host), url);
        assert_eq!((place.origin.https, place.origin.port), (true, 443));
        assert_eq!(
            (endpoint.upstream_model.as_str(), route.model.name.as_str()),
            (model, model)
        );
        assert!(!route.has_choice());
    }
}

#[test]
fn the_first_provider_that_is_on_and_has_the_endpoint_serves() {
    let provider = |there: &[&str], operation| {
        World::new(there).find(operation, "either", &[]).map(|route| {
            let first = &route.endpoints[0];
            (first.provider.name.clone(), first.upstream_model.clone())
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
    let world = World::new(ALL);
    let error = |operation, model: &str| world.find(operation, model, &[]).unwrap_err();
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
    let world = World::new(ALL);
    let find = |off: &[&str]| world.find(Operation::Messages, "either", off);
    let all = find(&[]).unwrap();
    assert_eq!(names(&all), ["anthropic", "deepseek"]);
    let is_free = |one: &Arc<Endpoint>| one.priced.price.version() == "free";
    assert!(all.has_choice() && !all.endpoints.iter().any(is_free));
    assert_eq!(names(&find(&["anthropic"]).unwrap()), ["deepseek"]);
    assert_eq!(find(&["anthropic", "deepseek"]).unwrap_err(), RouteError::ProviderOff);
    // Without a switch that concerns it, a request shares the prepared route.
    assert!(Arc::ptr_eq(&all, &find(&["openai"]).unwrap()));
}

#[test]
fn endpoints_share_what_their_provider_has() {
    let world = World::new(ALL);
    let first = |operation, model| Arc::clone(&world.find(operation, model, &[]).unwrap().endpoints[0]);
    let (either, opus) = (
        first(Operation::Messages, "either"),
        first(Operation::Messages, "claude-opus-5-5"),
    );
    let counting = first(Operation::CountTokens, "either");
    assert!(Arc::ptr_eq(&either.pool, &opus.pool) && Arc::ptr_eq(&either.backends, &counting.backends));
    let now = crate::edges::clock::instant();
    either.breaker.open_for(Duration::from_secs(9), now);
    let again = either.pool.circuit(Operation::Messages, "up/stream");
    assert!(again.open_until(now).is_some(), "the provider's own breaker");
    assert!(opus.breaker.open_until(now).is_none() && counting.breaker.open_until(now).is_none());
}

#[test]
fn an_endpoint_shows_no_secret() {
    let world = World::new(ALL);
    let route = world.find(Operation::Messages, "either", &[]).unwrap();
    let credential = &route.endpoints[0].provider.credentials[0];
    assert!(credential.header.is_sensitive() && credential.header.to_str().unwrap().contains("secret-of-a-provider"));
    let shown = format!("{:?} {:#?}", world.routes, route);
    assert!(shown.contains("Secret(..)") && !shown.contains("secret-of-a-provider"));
}
