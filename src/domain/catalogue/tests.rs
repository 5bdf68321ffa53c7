//! Tests of `catalogue`.

use super::*;
use crate::domain::{
    keys::secret::Secret,
    money::price::{PriceList, SHIPPED_FILE},
    rules::{RuleFile, condition::matches, shipped},
    strict_toml::FileError,
};

mod pricing;
mod secrets;

/// The catalogue of these tests: what the shipped files give when the named secrets are there.
pub(crate) fn with_secrets(there: &[&str], settings: &CatalogueSettings) -> (Catalogue, Vec<CatalogueWarning>) {
    built(there, settings).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn built(there: &[&str], settings: &CatalogueSettings) -> Result<(Catalogue, Vec<CatalogueWarning>), Vec<FileError>> {
    let secrets = |secret: &SecretRef| match secret {
        SecretRef::Env(name) if there.contains(&name.as_str()) => Ok(Some(Secret::new("secret-of-a-provider"))),
        SecretRef::File(path) if path == "/unreadable" => Err("permission denied".to_owned()),
        SecretRef::Env(_) | SecretRef::File(_) | SecretRef::Credential(_) => Ok(None),
    };
    Catalogue::build(&shipped(), settings, &prices(), &secrets)
}

/// The shipped prices and those of the tests' own models.
fn prices() -> PriceList {
    let own = ["own-light", "own-pro"].map(|name| {
        format!("[[price]]\nname = \"{name}\"\nprovider = \"own\"\ntiers = [{{ input = \"1\", output = \"2\" }}]\n")
    });
    // In the shipped file's name, so that nobody is warned of them where they are not in use.
    let own = PriceList::read(SHIPPED_FILE, &format!("version = \"tests\"\n{}", own.concat()));
    PriceList::shipped().unwrap().extended_by(own.unwrap())
}

fn refused(settings: &CatalogueSettings) -> String {
    let errors = built(&["OPENAI_API_KEY"], settings).unwrap_err();
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn change(provider: &str, change: ProviderOverride) -> CatalogueSettings {
    CatalogueSettings {
        overrides: [(provider.to_owned(), change)].into(),
        ..CatalogueSettings::default()
    }
}

fn settings_model(name: &str, providers: &[&str]) -> RawModel {
    let providers = providers.iter().map(|&provider| provider.to_owned()).collect();
    RawModel {
        name: name.to_owned(),
        providers,
        free: true,
        ..RawModel::default()
    }
}

#[test]
fn a_provider_without_its_secret_is_off_and_unlisted() {
    let (catalogue, warnings) = with_secrets(&["OPENAI_API_KEY"], &CatalogueSettings::default());
    assert_eq!(warnings.len(), shipped().len() - 1);
    assert!(warnings[0].to_string().contains(
        "`anthropic` is off and its models are not listed, because it has no secret (env:ANTHROPIC_API_KEY is absent)"
    ));
    assert!(
        catalogue
            .served_models()
            .all(|model| model.preferred_provider() == "openai")
            && catalogue.served_models().count() == 5
    );
    assert_eq!(catalogue.providers().count(), shipped().len());
    assert!(catalogue.find("claude-opus-5-5").is_some_and(|model| !model.is_on()));
}

#[test]
fn a_base_url_moves_every_endpoint_and_keeps_the_paths() {
    let base_url = Some("http://127.0.0.1:9000".to_owned());
    let settings = change(
        "gemini",
        ProviderOverride {
            base_url,
            ..ProviderOverride::default()
        },
    );
    let (catalogue, _) = with_secrets(&["GEMINI_API_KEY"], &settings);
    let gemini = catalogue
        .providers()
        .find(|provider| provider.name == "gemini")
        .unwrap();
    let hosts = gemini.hosts();
    assert!(hosts.iter().all(|host| *host == ("127.0.0.1".to_owned(), 9000)) && hosts.len() == 3);
    let endpoint = gemini.endpoints.get(Operation::GenerateContent).unwrap();
    assert_eq!(
        (endpoint.origin.https, endpoint.fill("m").as_str()),
        (false, "/v1beta/models/m:generateContent")
    );
}

#[test]
fn a_disabled_provider_is_off_without_a_look_at_its_secret() {
    let secret = Some(SecretRef::File("/unreadable".to_owned()));
    let off = ProviderOverride {
        enabled: Some(false),
        secret: secret.clone(),
        ..ProviderOverride::default()
    };
    let (catalogue, warnings) = with_secrets(&[], &change("openai", off));
    assert_eq!(catalogue.served_models().count(), 0);
    assert!(warnings.contains(&CatalogueWarning::Disabled {
        provider: "openai".to_owned()
    }));
    let error = refused(&change(
        "openai",
        ProviderOverride {
            secret,
            ..ProviderOverride::default()
        },
    ));
    assert_eq!(
        error,
        "weir.toml: provider.openai.secret: file:/unreadable: permission denied"
    );
}

#[test]
fn unknown_providers_name_the_nearest() {
    let error = refused(&change("opnai", ProviderOverride::default()));
    assert_eq!(
        error,
        "weir.toml: [provider.opnai]: there is no provider `opnai`, did you mean `openai`?"
    );
    let models = vec![settings_model("m", &["antropic"])];
    let error = refused(&CatalogueSettings {
        models,
        ..CatalogueSettings::default()
    });
    assert!(
        error.contains("[[model]] number 1: there is no provider `antropic`, did you mean `anthropic`?"),
        "{error}"
    );
}

#[test]
fn models_of_the_settings_add_and_replace() {
    let own = RawModel {
        upstream_name: Some("gpt-6-luna".to_owned()),
        created: Some("2026-11-21".to_owned()),
        ..settings_model("fast", &["openai"])
    };
    let replaced = settings_model("gpt-5.5", &["deepseek", "openai"]);
    let settings = CatalogueSettings {
        models: vec![own, replaced],
        ..CatalogueSettings::default()
    };
    let (catalogue, _) = with_secrets(&["OPENAI_API_KEY"], &settings);
    let own = catalogue.find("fast").unwrap();
    assert_eq!(
        (own.upstream_name.as_str(), own.display_name.as_str()),
        ("gpt-6-luna", "fast")
    );
    assert_eq!(own.created_unix, 1_795_219_200);
    let replaced = catalogue.find("gpt-5.5").unwrap();
    assert!(replaced.free && replaced.prices["openai"].version() == "free");
    assert_eq!(replaced.protocols, [Protocol::Messages, Protocol::Responses]);
    assert!(
        replaced.serves(Protocol::Responses) && !replaced.serves(Protocol::Messages),
        "deepseek is off"
    );
}

#[test]
fn wrong_models_of_the_settings_are_refused() {
    let base = settings_model("m", &["openai"]);
    for (model, what) in [
        (settings_model("a\u{202e}b", &["openai"]), "`name`"),
        (settings_model("a,b", &["openai"]), "commas are not allowed"),
        (
            RawModel {
                upstream_name: Some(String::new()),
                ..base.clone()
            },
            "`upstream_name`",
        ),
        (
            RawModel {
                protocols: Some(vec![Protocol::Gemini]),
                ..base.clone()
            },
            "serves `gemini`",
        ),
        (
            RawModel {
                protocols: Some(Vec::new()),
                ..base.clone()
            },
            "through any protocol",
        ),
        (
            RawModel {
                created: Some("yesterday".to_owned()),
                ..base.clone()
            },
            "`created`",
        ),
        (settings_model("m", &[]), "`providers` is missing"),
    ] {
        let error = refused(&CatalogueSettings {
            models: vec![model],
            ..CatalogueSettings::default()
        });
        assert!(
            error.contains("[[model]] number 1") && error.contains(what),
            "{what}: {error}"
        );
    }
    let error = refused(&CatalogueSettings {
        models: vec![base.clone(), base],
        ..CatalogueSettings::default()
    });
    assert!(error.contains("number 2: model `m` is defined twice"), "{error}");
}

#[test]
fn model_names_are_unique_over_the_files() {
    let mut files = shipped();
    let copy = files[0].text.replacen("name = \"anthropic\"", "name = \"other\"", 1);
    files.push(RuleFile {
        name: "other.toml".to_owned(),
        text: copy,
    });
    let errors = Catalogue::build(&files, &CatalogueSettings::default(), &prices(), &|_| Ok(None)).unwrap_err();
    assert_eq!(errors.len(), 7);
    assert!(
        errors[0]
            .to_string()
            .contains("is already defined in lua-free-rules/anthropic.toml")
            && errors[0].line.is_some()
    );
    files.pop();
    files.push(RuleFile {
        name: "again.toml".to_owned(),
        ..files[0].clone()
    });
    let errors = Catalogue::build(&files, &CatalogueSettings::default(), &prices(), &|_| Ok(None)).unwrap_err();
    assert!(
        errors[0]
            .to_string()
            .contains("again.toml: provider `anthropic` is already defined in"),
        "{errors:?}"
    );
}

fn own(text: &str, there: &[&str]) -> Result<Catalogue, String> {
    let file = RuleFile {
        name: "own.toml".to_owned(),
        text: text.to_owned(),
    };
    let secrets = |secret: &SecretRef| match secret {
        SecretRef::Env(name) if there.contains(&name.as_str()) => Ok(Some(Secret::new("secret-of-a-provider"))),
        _ => Ok(None),
    };
    Catalogue::build(&[file], &CatalogueSettings::default(), &prices(), &secrets)
        .map(|(catalogue, _)| catalogue)
        .map_err(|errors| errors.iter().map(|error| format!("{error}\n")).collect())
}

const OWN: &str = r#"
name = "own"
[auth]
style = "bearer"
[[credential]]
name = "a"
secret = "env:A"
[[credential]]
name = "b"
secret = "env:B"
weight = 3
[[origin]]
url = "https://eu.example"
[[origin]]
url = "https://us.example"
weight = 2
health_path = "/healthz"
[endpoints]
messages = "https://api.example/v1/messages"
responses = "https://api.example/v1/responses"
[fallback]
patterns = ["own-*"]
model = "own-light"
protocols = ["messages"]
[[model]]
name = "own-light"
aliases = ["light"]
[[model]]
name = "own-pro"
"#;

#[test]
fn names_aliases_and_fallbacks_find_their_model() {
    let catalogue = own(OWN, &["A"]).unwrap();
    let answers = |protocol, asked| catalogue.resolve(protocol, asked).map(|model| model.name.as_str());
    assert_eq!(answers(Protocol::Messages, "own-pro"), Some("own-pro"));
    assert_eq!(answers(Protocol::Responses, "light"), Some("own-light"));
    assert_eq!(answers(Protocol::Messages, "own-of-1999"), Some("own-light"));
    assert_eq!(answers(Protocol::Responses, "own-of-1999"), None);
    assert_eq!(answers(Protocol::Messages, "other"), None);
    for asked in ["Own-of-1999", "OWN-", "own-9[1m]", "own-\u{6a21} 9"] {
        assert_eq!(answers(Protocol::Messages, asked), Some("own-light"), "{asked}");
    }
    for asked in ["own-pro[1m]", "own-pro-20261124", "own-pro-2026-11-24[200k]"] {
        assert_eq!(answers(Protocol::Messages, asked), Some("own-pro"), "{asked}");
        assert_eq!(answers(Protocol::Responses, asked), Some("own-pro"), "{asked}");
    }
    assert_eq!(answers(Protocol::Responses, "light-20261124"), Some("own-light"));
    assert_eq!(answers(Protocol::Responses, "own-pro-1"), None);
    let off = own(OWN, &[]).unwrap();
    assert!(
        off.resolve(Protocol::Messages, "own-of-1999").is_none(),
        "a provider that is off has no family"
    );
}

#[test]
fn patterns_match_as_a_whole() {
    for (pattern, name, fits) in [
        ("a*", "a", true),
        ("a*c", "abc", true),
        ("a*c", "abcd", false),
        ("*b*", "abc", true),
        ("abc", "abcd", false),
        ("a**c", "ac", true),
        ("*é", "caffé", true),
    ] {
        assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
    }
}

#[test]
fn a_provider_is_on_with_any_of_its_credentials() {
    let credentials = |there: &[&str]| {
        let catalogue = own(OWN, there).unwrap();
        let provider = catalogue.providers().next().unwrap();
        let found = provider.credentials.iter();
        found
            .map(|one| format!("{}{}", one.name, one.weight))
            .collect::<Vec<_>>()
    };
    assert_eq!(credentials(&["A", "B"]), ["a1", "b3"]);
    assert_eq!(credentials(&["B"]), ["b3"]);
    assert_eq!(credentials(&[]), [""; 0]);
}

#[test]
fn places_take_the_endpoints_place() {
    let catalogue = own(OWN, &["A"]).unwrap();
    let provider = catalogue.providers().next().unwrap();
    let places = provider.origins_for(Operation::Messages);
    assert_eq!(places.len(), 2);
    assert_eq!(
        (places[1].weight, places[1].health_path.as_deref()),
        (2, Some("/healthz"))
    );
    assert_eq!(provider.hosts()[0], ("eu.example".to_owned(), 443));
    assert!(provider.origins_for(Operation::CountTokens).is_empty());
}

#[test]
fn wrong_resilience_keys_are_refused_with_their_line() {
    for (from, to, what) in [
        ("name = \"b\"", "name = \"a\"", "`a` is listed twice"),
        ("weight = 3", "weight = 0", "key `weight`"),
        ("https://us.example", "https://eu.example", "is listed twice"),
        ("/healthz", "healthz", "key `health_path`"),
        ("own-*", "*", "matches every name"),
        ("model = \"own-light\"", "model = \"nobody\"", "key `model`"),
        (
            "style = \"bearer\"",
            "style = \"bearer\"\nsecret = \"env:C\"",
            "not both",
        ),
        (
            "aliases = [\"light\"]",
            "aliases = [\"own-pro\"]",
            "`own-pro` is already the name of a model",
        ),
        ("[fallback]", "[retry]\nattempts = 0\n[fallback]", "retry.attempts"),
        ("[fallback]", "[retry]\nstatuses = [200]\n[fallback]", "retry.statuses"),
    ] {
        let text = OWN.replacen(from, to, 1);
        assert_ne!(text, OWN, "{from}");
        let errors = own(&text, &["A"]).unwrap_err();
        assert!(errors.starts_with("own.toml:") && errors.contains(what), "{errors}");
    }
}
