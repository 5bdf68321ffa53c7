//! Secrets that are not there, empty, or too short.

use super::*;

#[test]
fn an_empty_secret_switches_its_provider_off_and_a_short_one_is_refused_by_name() {
    let build = |secret: &'static str| {
        let secrets = move |place: &SecretRef| match place {
            SecretRef::Env(name) if name == "OPENAI_API_KEY" => Ok(Some(Secret::new(secret))),
            _ => Ok(None),
        };
        let prices = PriceList::shipped().unwrap();
        Catalogue::build(&shipped(), &CatalogueSettings::default(), &prices, &secrets)
    };
    let (catalogue, warnings) = build("").unwrap();
    assert_eq!(catalogue.served_models().count(), 0);
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let empty = "provider `openai` is off and its models are not listed, because it has no secret (env:OPENAI_API_KEY is empty); set the secret";
    assert!(told.iter().any(|warning| warning == empty), "{told:?}");
    let openai = catalogue
        .providers()
        .find(|provider| provider.name == "openai")
        .unwrap();
    assert_eq!(
        openai.why_off().as_deref(),
        Some("its secret env:OPENAI_API_KEY is empty")
    );

    for short in ["x", "json", "event", "eleven-char"] {
        let [error] = build(short).unwrap_err().try_into().unwrap();
        let told = error.to_string();
        let named = "key `auth.secret`: env:OPENAI_API_KEY: the secret has fewer than 12 characters";
        assert!(told.contains("openai.toml") && told.contains(named), "{told}");
        assert!(!told.contains(short) || short == "x", "{told}");
    }
    assert!(build("twelve-chars").unwrap().0.served_models().count() > 0);
}
