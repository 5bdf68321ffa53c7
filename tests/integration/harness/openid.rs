//! OpenID providers: a real one from npm, and a made-up one that says what a test has it say.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::answer::Answer;
use super::client::{Client, Response};
use super::node::{node, node_modules};
use super::port::free_port;
use super::process::Process;
use super::provider::{Recorded, RecordingProvider, Welcome};
use super::request::Request;
use super::tools::repository;
use super::wait::wait_until;

/// How many redirects a browser follows there.
const REDIRECTS_MAX: usize = 8;
const SECRET: &str = "s3cret & more";

/// npm's `oidc-provider`.
pub(crate) struct RealProvider {
    node: PathBuf,
    port: u16,
    redirect: String,
    process: Option<Process>,
    starts: usize,
    folder: TempDir,
}

impl RealProvider {
    /// One that knows weir, to come back to `redirect`; `None` where Node or its packages are missing.
    pub(crate) fn start(redirect: &str) -> Option<RealProvider> {
        let node = node()?;
        node_modules("tests/openid")?;
        let mut provider = RealProvider {
            node,
            port: free_port(),
            redirect: redirect.to_owned(),
            process: None,
            starts: 0,
            folder: TempDir::new().unwrap(),
        };
        provider.start_anew();
        Some(provider)
    }

    /// Ends it and starts another at its place, which has keys of its own.
    pub(crate) fn start_anew(&mut self) {
        self.process = None;
        let mut command = Command::new(&self.node);
        command.arg(repository().join("tests/openid/provider.js")).args([
            &self.port.to_string(),
            &self.redirect,
            SECRET,
        ]);
        self.starts += 1;
        let name = format!("provider-{}", self.starts);
        let process = Process::start(&command, self.folder.path(), &name);
        wait_until("the OpenID provider listens", || {
            std::fs::read_to_string(&process.stdout).is_ok_and(|said| said.contains("listens: "))
        });
        self.process = Some(process);
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        self.process = None;
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    /// The secret that weir has there.
    pub(crate) fn secret() -> &'static str {
        SECRET
    }

    /// What a browser is sent back with that signs in there as `account`: the query of weir's address.
    #[track_caller]
    pub(crate) fn sign_in(&self, address: &str, account: &str) -> String {
        let mut target = address.strip_prefix(&self.issuer()).expect(address).to_owned();
        let mut cookies: Vec<String> = Vec::new();
        for _ in 0..REDIRECTS_MAX {
            if target.starts_with("/interaction/") {
                target.push_str(&format!("?account={account}"));
            }
            let host = format!("localhost:{}", self.port);
            let request = Request::new("GET", &target)
                .header("host", &host)
                .header("cookie", &cookies.join("; "));
            let address = SocketAddr::from(([127, 0, 0, 1], self.port));
            let answer = Client::connect(address).exchange(&request);
            let to = answer.header("location").unwrap_or_else(|| panic!("{}", answer.text()));
            if let Some(query) = to.strip_prefix(&self.redirect) {
                return query.trim_start_matches('?').to_owned();
            }
            keep(&mut cookies, &answer);
            target = to.strip_prefix(&self.issuer()).unwrap_or(to).to_owned();
        }
        panic!("{REDIRECTS_MAX} redirects");
    }
}

fn keep(cookies: &mut Vec<String>, answer: &Response) {
    let set = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
    for pair in set.filter_map(|(_, line)| line.split(';').next()) {
        let name = pair.split('=').next().unwrap_or_default();
        cookies.retain(|known| known.split('=').next() != Some(name));
        cookies.push(pair.to_owned());
    }
}

/// A provider whose tokens are what the code says that they are: a code is what [`Code::text`] makes of it.
pub(crate) struct MadeUpProvider {
    provider: RecordingProvider,
    /// Of what seed its key is made.
    seed: Arc<Mutex<u8>>,
}

/// What a provider answers to a code.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) claims: Json,
    pub(crate) header: Json,
    /// Of what seed the key is made that signs.
    pub(crate) seed: u8,
}

impl Code {
    /// An owner's, who has begun to sign in with this nonce at this issuer, to be signed by the first key.
    pub(crate) fn new(issuer: &str, nonce: &str) -> Code {
        let now = jiff::Timestamp::now().as_second();
        Code {
            claims: json!({
                "iss": issuer, "aud": "weir", "sub": "7", "name": "Ada", "groups": ["weir-owners"],
                "nonce": nonce, "iat": now, "exp": now + 300,
            }),
            header: json!({"alg": "EdDSA"}),
            seed: 1,
        }
    }

    /// The same with another claim.
    pub(crate) fn with(mut self, claim: &str, value: Json) -> Code {
        self.claims[claim] = value;
        self
    }

    pub(crate) fn text(&self) -> String {
        let all = json!({"claims": self.claims, "header": self.header, "seed": self.seed});
        URL_SAFE_NO_PAD.encode(all.to_string())
    }
}

impl MadeUpProvider {
    pub(crate) fn start() -> MadeUpProvider {
        MadeUpProvider::start_with(None)
    }

    /// With TLS, or without.
    pub(crate) fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> MadeUpProvider {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let seed = Arc::new(Mutex::new(1));
        let (key, used) = (Arc::clone(&seed), Mutex::new(HashSet::new()));
        let script = move |request: &Recorded, answer: &mut Answer<'_>| {
            let issuer = format!("{scheme}://{}", request.header("host").unwrap());
            match request.target.as_str() {
                "/.well-known/openid-configuration" => answer.json(&document(&issuer).to_string()),
                "/keys" => answer.json(&json!({"keys": [public(*key.lock().unwrap())]}).to_string()),
                "/token" => match token(request, &used) {
                    Some(token) => answer.json(&json!({"id_token": token, "access_token": "a"}).to_string()),
                    None => answer.full(400, &[], br#"{"error":"invalid_grant","error_description":"canary"}"#),
                },
                _ => answer.full(404, &[], b"{}"),
            }
        };
        let provider = RecordingProvider::start_with(tls, |_| Welcome::Serve, script);
        MadeUpProvider { provider, seed }
    }

    pub(crate) fn issuer(&self) -> String {
        self.provider.base_url()
    }

    /// From now on it has another key.
    pub(crate) fn change_key(&self, seed: u8) {
        *self.seed.lock().unwrap() = seed;
    }

    /// How often a path was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        let requests = self.provider.requests();
        requests.iter().filter(|request| request.target == path).count()
    }
}

fn document(issuer: &str) -> Json {
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/auth"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
    })
}

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn public(seed: u8) -> Json {
    json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(pair(seed).public_key())})
}

/// The token of a code that is there for the first time, with a verifier.
fn token(request: &Recorded, used: &Mutex<HashSet<String>>) -> Option<String> {
    let form: Vec<(String, String)> = form_urlencoded::parse(&request.body).into_owned().collect();
    let field = |name: &str| {
        form.iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    };
    let (code, verifier) = (field("code")?, field("code_verifier")?);
    assert_eq!(
        (field("grant_type")?.as_str(), verifier.len()),
        ("authorization_code", 43)
    );
    if !used.lock().unwrap().insert(code.clone()) {
        return None;
    }
    let all: Json = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(code).ok()?).ok()?;
    let encode = |part: &Json| URL_SAFE_NO_PAD.encode(part.to_string());
    let message = format!("{}.{}", encode(&all["header"]), encode(&all["claims"]));
    let signature = pair(u8::try_from(all["seed"].as_u64()?).ok()?).sign(message.as_bytes());
    Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
