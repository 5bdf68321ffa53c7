//! Tests of `catalogue`.

use super::*;
use crate::domain::rules::shipped;

/// The catalogue of these tests: what the shipped files give when the named secrets are there.
pub(in crate::domain) fn with_secrets(there: &[&str], settings: &CatalogueSettings) -> (Catalogue, Vec<Warning>) {
    built(there, settings).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn built(there: &[&str], settings: &CatalogueSettings) -> Result<(Catalogue, Vec<Warning>), Vec<FileError>> {
    let secrets = |secret: &SecretRef| match secret {
        SecretRef::Env(name) if there.contains(&name.as_str()) => Ok(Some(Secret::new("secret"))),
        SecretRef::File(path) if path == "/unreadable" => Err("permission denied".to_owned()),
        SecretRef::Env(_) | SecretRef::File(_) | SecretRef::Credential(_) => Ok(None),
    };
    Catalogue::build(&shipped(), settings, &secrets)
}

fn refused(settings: &CatalogueSettings) -> String {
    let errors = built(&["OPENAI_API_KEY"], settings).unwrap_err();
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn change(provider: &str, change: ProviderOverride) -> CatalogueSettings {
    CatalogueSettings {
        overrides: [(provider.to_owned(), change)].into(),
        models: Vec::new(),
    }
}

fn settings_model(name: &str, providers: &[&str]) -> RawModel {
    let providers = providers.iter().map(|&provider| provider.to_owned()).collect();
    RawModel {
        name: name.to_owned(),
        providers,
        ..RawModel::default()
    }
}

#[test]
fn a_provider_without_its_secret_is_off_and_unlisted() {
    let (catalogue, warnings) = with_secrets(&["OPENAI_API_KEY"], &CatalogueSettings::default());
    assert_eq!(warnings.len(), shipped().len() - 1);
    assert!(
        warnings[0]
            .to_string()
            .contains("`anthropic` is off: its secret env:ANTHROPIC_API_KEY is absent")
    );
    assert!(catalogue.models().all(|model| model.owner() == "openai") && catalogue.models().count() == 5);
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
    assert!(gemini.hosts().all(|host| host == ("127.0.0.1".to_owned(), 9000)) && gemini.hosts().count() == 3);
    let endpoint = gemini.endpoints.of(Operation::GenerateContent).unwrap().fill("m");
    assert_eq!(
        (endpoint.https, endpoint.path_and_query.as_str()),
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
    assert_eq!(catalogue.models().count(), 0);
    assert!(warnings.contains(&Warning::Disabled {
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
    let replaced = RawModel {
        free: true,
        ..settings_model("gpt-5.5", &["deepseek", "openai"])
    };
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
    assert!(replaced.free && replaced.price.is_none());
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
        (
            RawModel {
                name: "a b".to_owned(),
                ..base.clone()
            },
            "`name`",
        ),
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
            "through none",
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
    assert!(error.contains("number 2: model `m` is there twice"), "{error}");
}

#[test]
fn model_names_are_unique_over_the_files() {
    let mut files = shipped();
    let copy = files[0].text.replacen("name = \"anthropic\"", "name = \"other\"", 1);
    files.push(RuleFile {
        name: "other.toml".to_owned(),
        text: copy,
    });
    let errors = Catalogue::build(&files, &CatalogueSettings::default(), &|_| Ok(None)).unwrap_err();
    assert_eq!(errors.len(), 7);
    assert!(
        errors[0]
            .to_string()
            .contains("is also in lua-free-rules/anthropic.toml")
            && errors[0].line.is_some()
    );
    files.pop();
    files.push(RuleFile {
        name: "again.toml".to_owned(),
        ..files[0].clone()
    });
    let errors = Catalogue::build(&files, &CatalogueSettings::default(), &|_| Ok(None)).unwrap_err();
    assert!(
        errors[0]
            .to_string()
            .contains("again.toml: provider `anthropic` is also in"),
        "{errors:?}"
    );
}
