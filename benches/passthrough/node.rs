//! A node of weir that is measured: its configuration, an account with money and a key.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    bare,
    fleet::{Launch, Proxy, WEIR},
    process::Process,
    request::MODEL,
    row::Subject,
};

/// The providers behind weir, each with the protocol that its model is asked for in. All are the sample provider.
const PROVIDERS: [(&str, &str); 3] = [("anthropic", "messages"), ("openai", "responses"), ("gemini", "gemini")];

/// The provider that only speaks `chat/completions`, and its file, without models. It is the sample provider, too.
const CHAT_HOST: &str = "chat-host";
const CHAT_FILE: &str = r#"name = "chat-host"
[auth]
secret = "env:WEIR_BENCH_PROVIDER_SECRET"
style = "bearer"
[endpoints]
chat_completions = "https://chat-host.test/v1/chat/completions"
"#;

/// Models that weir translates: the protocol of the provider, the provider, and the protocol that clients ask in.
const TRANSLATED: [(&str, &str, &str); 6] = [
    ("chat", CHAT_HOST, "messages"),
    ("chat", CHAT_HOST, "responses"),
    ("chat", CHAT_HOST, "gemini"),
    ("messages", "anthropic", "responses"),
    ("responses", "openai", "messages"),
    ("gemini", "gemini", "messages"),
];

/// The variable with the provider's credential, and the credential.
const SECRET_NAME: &str = "WEIR_BENCH_PROVIDER_SECRET";
const SECRET: &str = "bench-provider-secret";

/// What it costs: every request is held, charged and settled. In USD per million tokens.
const PRICE: &str = "tiers = [{ input = \"3\", output = \"15\" }]\n";

/// The same for one token read and one written, in nano-USD.
pub(crate) const NANO_USD_PER_TOKEN: (u64, u64) = (3_000, 15_000);

/// The configuration, in a node's folder.
const CONF: &str = "etc/weir.toml";

/// The account that all keys are of, and what it has, in USD.
pub(crate) const ACCOUNT: &str = "bench";
pub(crate) const FUNDS_USD: u64 = 1_000_000;

/// A weir that is to be started.
pub(crate) struct Weir<'a> {
    pub(crate) subject: Subject,
    /// Of its folder, below the fleet's.
    pub(crate) name: &'a str,
    /// Its table `[store]` and the engine's; a path in it is below the folder.
    pub(crate) store: &'a str,
    /// Further tables.
    pub(crate) more: &'a str,
    /// The key, where the store has one. Else the store is set up, and an account and a key are made.
    pub(crate) key: Option<&'a str>,
    /// Further options of the key that is made.
    pub(crate) limits: &'a [&'a str],
}

impl Proxy {
    /// Writes a backup of its store to a file.
    pub(crate) fn back_up(&self, to: &Path) {
        store_command(&self.home, &["backup", "--out", &to.to_string_lossy()]);
    }
}

impl<'a> Weir<'a> {
    /// The only one with a store that is empty.
    pub(crate) fn of(subject: Subject, store: &'a str) -> Self {
        Self {
            subject,
            name: subject.name(),
            store,
            more: "",
            key: None,
            limits: &[],
        }
    }

    /// Puts a backup into its store, which is empty. It is not running.
    pub(crate) fn restore(&self, provider: SocketAddr, folder: &Path, backup: &Path) {
        let home = self.configure(provider, folder);
        store_command(&home, &["restore", "--from", &backup.to_string_lossy()]);
    }

    /// Starts it; returns when it accepts connections.
    pub(crate) fn start(&self, provider: SocketAddr, folder: &Path, launch: Launch) -> Proxy {
        let home = self.configure(provider, folder);
        let (admin, ready, conf) = (home.join("admin.sock"), home.join("ready.json"), home.join(CONF));
        if self.subject == Subject::Redis && self.key.is_none() {
            store_command(&home, &["init"]);
        }
        let mut command = launch(Path::new(WEIR), &home);
        command.env(SECRET_NAME, SECRET);
        command.arg("serve").arg("--conf").arg(&conf);
        command.arg("--ready-file").arg(&ready);
        let mut process = Process::start(self.name, &mut command, &home);
        let [address, stability, console] = process.wait_for("to write its ready file", || {
            let told: Value = serde_json::from_str(&fs::read_to_string(&ready).ok()?).ok()?;
            let at = |name: &str| told.get(name)?.as_str()?.parse().ok();
            Some([at("gateway")?, at("stability")?, at("console")?])
        });
        process.wait_until_accepting(address);
        let key = match self.key {
            Some(key) => key.to_owned(),
            None => {
                create_account(&admin);
                created_key(&admin, self.limits)
            }
        };
        Proxy {
            subject: self.subject,
            address,
            stability,
            console,
            process,
            key,
            model: MODEL,
            headers: String::new(),
            home,
        }
    }

    /// Writes its configuration and its prices; answers with its folder.
    fn configure(&self, provider: SocketAddr, folder: &Path) -> PathBuf {
        let home = folder.join(self.name);
        let conf = home.join(CONF);
        // What weir writes is elsewhere than its configuration, which it watches.
        for folder in ["etc", "rules"] {
            fs::create_dir_all(home.join(folder)).expect("a folder in the temporary folder");
        }
        fs::write(home.join("rules/chat-host.toml"), CHAT_FILE).expect("a file in the temporary folder");
        let price = |(model, _, _)| format!("[[price]]\nname = \"{model}\"\n{PRICE}");
        let prices: String = self.models().into_iter().map(price).collect();
        let prices = format!("version = \"bench\"\n{prices}");
        fs::write(home.join("etc/prices.toml"), prices).expect("a file in the temporary folder");
        fs::write(&conf, self.configuration(provider, &home)).expect("a file in the temporary folder");
        home
    }

    /// Each with its provider and its protocol; the last is its own, by which its bills are told from others'.
    fn models(&self) -> Vec<(String, &'static str, &'static str)> {
        let shared = PROVIDERS.map(|(provider, protocol)| (model_of(protocol), provider, protocol));
        let (provider, protocol) = PROVIDERS[0];
        let own = (self.subject.model().to_owned(), provider, protocol);
        shared.into_iter().chain([own]).collect()
    }

    fn configuration(&self, provider: SocketAddr, home: &Path) -> String {
        let home = home.display();
        let store = self.store.replace("path = \"", &format!("path = \"{home}/"));
        let names = PROVIDERS.map(|(name, _)| name).into_iter().chain([CHAT_HOST]);
        let providers: String = names
            .map(|name| {
                format!("[provider.{name}]\nbase_url = \"http://{provider}\"\nsecret = \"env:{SECRET_NAME}\"\n")
            })
            .collect();
        let model = |(model, provider, protocol)| {
            format!("[[model]]\nname = \"{model}\"\nproviders = [\"{provider}\"]\nprotocols = [\"{protocol}\"]\n")
        };
        let translated = TRANSLATED.map(|(from, provider, protocol)| {
            let name = translated_model(from, protocol);
            let own = format!("upstream_name = \"{MODEL}\"\nprice = \"{MODEL}\"\ntranslate = \"strict\"\n");
            model((name, provider, protocol)) + &own
        });
        let models: String = self.models().into_iter().map(model).chain(translated).collect();
        format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\nthreads = 1\n\
             [upstream]\npool_size = {pool}\n\
             [store]\n{store}\n\
             [ops]\nlisten = \"127.0.0.1:0\"\n\
             [stability]\nlisten = \"127.0.0.1:0\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
             [console]\nlisten = \"127.0.0.1:0\"\n\
             [admin]\nsocket = \"{home}/admin.sock\"\naudit = \"{home}/audit.jsonl\"\n\
             [journal]\npath = \"{home}/journal\"\n\
             [prices]\nfile = \"{home}/etc/prices.toml\"\n\
             [rules]\nfolder = \"{home}/rules\"\n\
             [log]\naccess = \"{home}/access.jsonl\"\nlevel = \"warn\"\n{more}\n{providers}{models}",
            more = self.more,
            pool = bare::POOL_SIZE,
        )
    }
}

/// The model that is asked for in a protocol.
pub(crate) fn model_of(protocol: &str) -> String {
    match protocol {
        "messages" => MODEL.to_owned(),
        other => format!("{MODEL}-{other}"),
    }
}

/// The model that is asked for in the protocol `client` and served by a provider that speaks `provider`.
pub(crate) fn translated_model(provider: &str, client: &str) -> String {
    format!("{MODEL}-{provider}-to-{client}")
}

/// Runs `weir store` for the node whose folder this is.
fn store_command(home: &Path, words: &[&str]) {
    let done = Command::new(WEIR)
        .arg("store")
        .args(words)
        .arg("--conf")
        .arg(home.join(CONF))
        .env(SECRET_NAME, SECRET)
        .output();
    let done = done.expect("weir store can be started");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "weir store {words:?}: {said}");
}

fn create_account(admin: &Path) {
    let created = Command::new(WEIR)
        .args(["account", "create", "--id", ACCOUNT, "--balance-usd"])
        .arg(FUNDS_USD.to_string())
        .arg("--admin")
        .arg(format!("unix:{}", admin.display()))
        .output()
        .expect("weir account can be started");
    let said = String::from_utf8_lossy(&created.stderr);
    assert!(created.status.success(), "weir account create: {said}");
}

/// Makes a key of the account that all keys are of.
pub(crate) fn created_key(admin: &Path, limits: &[&str]) -> String {
    let created = Command::new(WEIR)
        .args(["key", "create", "--account", ACCOUNT, "--name", "bench", "--json"])
        .args(limits)
        .arg("--admin")
        .arg(format!("unix:{}", admin.display()))
        .output()
        .expect("weir key can be started");
    let shown: Option<Value> = serde_json::from_slice(&created.stdout).ok();
    let key = shown.as_ref().and_then(|shown| shown.get("key")?.as_str());
    key.unwrap_or_else(|| panic!("weir key create: {}", String::from_utf8_lossy(&created.stderr)))
        .to_owned()
}
