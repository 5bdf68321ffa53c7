//! Runs `weir demo` and `weir sample-provider`. `weir demo` is a complete gateway on this machine that needs no installation and
//! leaves no files.

use std::{fmt::Write as _, fs, io::Write as _, net::SocketAddr, path::Path, sync::Arc};

use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    cli::DemoArgs,
    config::Config,
    console::Examples,
    domain::{
        catalogue::{Catalogue, CatalogueSettings},
        keys::{KeyId, KeyRecord, KeyState, secret::ServiceKey},
        ledger::{AccountChange, KeyTerms},
        money::{NanoUsd, price::PriceList},
        rules::shipped,
        wire::protocol::Protocol,
    },
    edges::clock,
    money::account_changes::{AccountChanges, JournaledChanges},
    sample_provider::{self, SampleProviderArgs},
    wiring::{
        StartError, catalogue,
        listeners::{Addresses, program},
        running::RunningWeir,
        services,
    },
};

/// Runs the demo until a signal ends it.
pub(super) fn run_demo(args: &DemoArgs) -> Result<(), StartError> {
    let folder = TempDir::with_prefix("weir-demo-")
        .map_err(|error| StartError::failed("cannot create a temporary folder", error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("sample-provider")
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("cannot start the sample provider's thread", error))?;
    let provider = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .map_err(|error| StartError::failed("cannot open the sample provider's listener", error))?;
    let provider_address = provider
        .local_addr()
        .map_err(|error| StartError::failed("cannot open the sample provider's listener", error))?;
    let ledger = folder.path().join("provider-ledger.jsonl");
    let settings = sample_provider::SampleSettings {
        ledger: Some(ledger),
        ..sample_provider::SampleSettings::default()
    };
    runtime.spawn(sample_provider::serve(provider, settings, std::future::pending()));

    let conf = folder.path().join("weir.toml");
    let config = demo_config(folder.path(), args.listen, provider_address)?;
    let (running, addresses) = services::start(config, &conf, None, None).map_err(|error| match error {
        StartError::Listen(why) => StartError::Listen(format!("{why} with --listen")),
        other => other,
    })?;
    let key = first_key(&running)?;
    let told = if args.json {
        json_line(&addresses, &key)
    } else {
        welcome_text(&addresses, &key, &running.parts.live.get().catalogue)
    };
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{told}").and_then(|()| stdout.flush());
    drop(stdout);
    written.map_err(|error| StartError::failed("cannot write to standard output", error))?;
    running.until_stopped();
    runtime.shutdown_background();
    folder
        .close()
        .map_err(|error| StartError::failed("cannot remove the temporary folder", error))
}

/// The model whose provider has only `chat/completions`, so that all requests for it are translated.
const TRANSLATED_MODEL: &str = "sample-chat";

/// Writes and loads a configuration with the shipped provider files and a file for [`TRANSLATED_MODEL`]. All providers have the
/// address of the sample provider.
fn demo_config(folder: &Path, listen: SocketAddr, provider: SocketAddr) -> Result<Config, StartError> {
    let secret = folder.join("provider-secret");
    let mut text = format!(
        "[gateway]\nlisten = \"{listen}\"\n\
         [store]\nengine = \"embedded\"\n[store.embedded]\npath = \"store\"\n\
         [journal]\npath = \"journal\"\n\
         [ops]\nlisten = \"127.0.0.1:0\"\n\
         [stability]\nlisten = \"127.0.0.1:0\"\n\
         [console]\nlisten = \"127.0.0.1:0\"\n\
         [admin]\nsocket = \"admin/admin.sock\"\naudit = \"audit.jsonl\"\n\
         [log]\naccess = \"access.jsonl\"\n\
         [rules]\nfolder = \"rules\"\n",
    );
    for name in shipped_providers()? {
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            "[provider.{name}]\nbase_url = \"http://{provider}\"\nsecret = \"file:{}\"\n",
            secret.display()
        );
    }
    let file = folder.join("weir.toml");
    let rules = folder.join("rules");
    fs::write(&secret, "sample-provider-secret")
        .and_then(|()| fs::create_dir(&rules))
        .and_then(|()| fs::write(rules.join("sample.toml"), translated_provider(provider, &secret)))
        .and_then(|()| fs::write(&file, text))
        .map_err(|error| StartError::failed("cannot write the demo's configuration", error))?;
    Config::load(&file).map_err(|error| StartError::Configuration(error.to_string()))
}

/// Returns the provider file for [`TRANSLATED_MODEL`].
fn translated_provider(provider: SocketAddr, secret: &Path) -> String {
    format!(
        "name = \"sample\"\ndisplay_name = \"Sample provider\"\n\
         [auth]\nsecret = \"file:{secret}\"\nstyle = \"bearer\"\n\
         [endpoints]\nchat_completions = \"http://{provider}/v1/chat/completions\"\n\
         [[model]]\nname = \"{TRANSLATED_MODEL}\"\ntranslate = \"strict\"\nfree = true\n",
        secret = secret.display()
    )
}

/// Returns the names of the shipped providers.
fn shipped_providers() -> Result<Vec<String>, StartError> {
    let none = CatalogueSettings::default();
    // Without secrets all providers are off, and their models need no prices.
    let (catalogue, _) = Catalogue::build(&shipped(), &none, &PriceList::default(), &|_| Ok(None))
        .map_err(|errors| catalogue::config_error(&errors))?;
    Ok(catalogue.providers().map(|provider| provider.name.clone()).collect())
}

/// The opening balance of the demo's account.
const FUNDS: NanoUsd = NanoUsd::from_nanos(100_000_000_000);

fn first_key(running: &RunningWeir) -> Result<ServiceKey, StartError> {
    let mut random = rand::rng();
    let key = ServiceKey::generate(&running.parts.config.gateway.key_prefix, &mut random);
    let record = KeyRecord {
        id: KeyId::generate(&mut random),
        name: "demo".to_owned(),
        account: "demo".into(),
        created_at: clock::unix_seconds(),
        expires_at: None,
        models: None,
        state: KeyState::Active,
        hint: key.hint(),
        revision: 0,
        terms: KeyTerms::default(),
        former: None,
        text_since: None,
    };
    let money = &running.parts.money;
    let changes = JournaledChanges::new(
        Arc::clone(&money.journal),
        Arc::clone(&money.ledger),
        money.billing.clone(),
    );
    let open = AccountChange::Open {
        balance: FUNDS,
        at: record.created_at,
        operation: None,
    };
    running.background.block_on(async {
        let funded = changes.submit(&record.account, open).await;
        funded.map_err(|error| StartError::failed("cannot create the demo's account", error))?;
        let created = running.parts.store.create(&key.digest(), &record).await;
        created.map_err(|error| StartError::failed("cannot create the demo's key", error))
    })?;
    Ok(key)
}

fn json_line(addresses: &Addresses, key: &ServiceKey) -> String {
    json!({
        "base_url": format!("http://{}", addresses.gateway),
        "key": key.as_str(),
        "stability_url": format!("http://{}", addresses.stability),
        "ops_url": format!("http://{}", addresses.ops),
        "console_url": addresses.console.map(|console| format!("http://{console}")),
        "portal_url": format!("http://{}/portal", addresses.gateway),
        "admin_socket": addresses.admin,
    })
    .to_string()
}

/// Returns the name of a model for the example request in this protocol; empty if no model is served in the protocol.
fn example(catalogue: &Catalogue, protocol: Protocol) -> String {
    let examples = Examples::new(catalogue, |_| false, None);
    examples.model_for(protocol).unwrap_or_default().to_owned()
}

fn welcome_text(addresses: &Addresses, key: &ServiceKey, catalogue: &Catalogue) -> String {
    let base = format!("http://{}", addresses.gateway);
    let key = key.as_str();
    let (messages, responses, gemini) = (
        example(catalogue, Protocol::Messages),
        example(catalogue, Protocol::Responses),
        example(catalogue, Protocol::Gemini),
    );
    format!(
        "weir demo: a gateway in front of a sample provider, until Ctrl-C.\n\n\
         status page  http://{stability}/status\n\
         metrics      http://{ops}/metrics\n\
         admin        unix:{admin}\n\
         console      http://{console}, opened by: {weir} console open --admin unix:{admin}\n\
         portal       {base}/portal, for owners of a key\n\n\
         In another shell, first:\n\
         export WEIR_URL={base}\n\
         export WEIR_KEY={key}\n\n\
         Messages:\n\
         curl -N $WEIR_URL/v1/messages -H \"x-api-key: $WEIR_KEY\" -H 'anthropic-version: 2023-06-01' \
         -H 'content-type: application/json' \
         -d '{{\"model\":\"{messages}\",\"max_tokens\":100,\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n\n\
         Responses:\n\
         curl -N $WEIR_URL/v1/responses -H \"authorization: Bearer $WEIR_KEY\" -H 'content-type: application/json' \
         -d '{{\"model\":\"{responses}\",\"stream\":true,\"input\":\"Hello\"}}'\n\n\
         Gemini-style:\n\
         curl -N \"$WEIR_URL/v1beta/models/{gemini}:streamGenerateContent?alt=sse\" -H \"x-goog-api-key: $WEIR_KEY\" \
         -H 'content-type: application/json' \
         -d '{{\"contents\":[{{\"parts\":[{{\"text\":\"Hello\"}}]}}]}}'\n\n\
         In all three, translated to chat/completions: the model {TRANSLATED_MODEL}\n\n\
         Agents:\n\
         ANTHROPIC_BASE_URL=$WEIR_URL ANTHROPIC_AUTH_TOKEN=$WEIR_KEY claude\n\
         GOOGLE_GEMINI_BASE_URL=$WEIR_URL GEMINI_API_KEY=$WEIR_KEY gemini\n\n\
         Codex, SDKs: the portal shows their settings; sign in with the key.\n\
         Costs of the requests: {weir} log query --admin unix:{admin}\n",
        weir = program(),
        stability = addresses.stability,
        ops = addresses.ops,
        admin = addresses.admin.display(),
        console = addresses.console.map(|console| console.to_string()).unwrap_or_default(),
    )
}

/// Runs `weir sample-provider` until a signal ends it.
pub(super) fn run_sample_provider(args: &SampleProviderArgs) -> Result<(), StartError> {
    let running = runtime(args.threads)?.block_on(sample_provider::run(args));
    running.map_err(|error| StartError::failed("cannot run the sample provider", error))
}

/// Starts a runtime with `threads` worker threads; 0 means one per core.
fn runtime(threads: usize) -> Result<Runtime, StartError> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("cannot start the sample provider's threads", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn the_examples_ask_for_models_that_people_know() {
        let (folder, somewhere) = (TempDir::new().unwrap(), SocketAddr::from(([127, 0, 0, 1], 9)));
        let config = demo_config(folder.path(), somewhere, somewhere).unwrap();
        let (catalogue, _) = catalogue::check(&config).unwrap();
        for (protocol, name) in [
            (Protocol::Messages, "claude-haiku-4-5"),
            (Protocol::Responses, "gpt-5.5"),
            (Protocol::Gemini, "gemini-3.8-flash"),
        ] {
            let provider = catalogue.find_name_or_alias(name).unwrap().providers.first().unwrap();
            assert!(
                ["anthropic", "openai", "gemini"].contains(&provider.name.as_str()),
                "{name}"
            );
            assert_eq!(example(&catalogue, protocol), name);
        }
        let empty = Catalogue::default();
        assert_eq!(example(&empty, Protocol::Gemini), "");
    }

    #[test]
    fn one_model_is_served_in_all_protocols_by_translation_alone() {
        let (folder, somewhere) = (TempDir::new().unwrap(), SocketAddr::from(([127, 0, 0, 1], 9)));
        let config = demo_config(folder.path(), somewhere, somewhere).unwrap();
        let (catalogue, _) = catalogue::check(&config).unwrap();
        let model = catalogue.find(TRANSLATED_MODEL).unwrap();
        assert_eq!(model.protocols_served(|_| false), Protocol::ALL);
        assert!(model.providers.iter().all(|provider| provider.protocols().is_empty()));
    }
}
