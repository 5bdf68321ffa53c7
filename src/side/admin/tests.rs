//! The admin API over a real socket, with the client that the subcommands use.

use std::{path::Path, sync::Arc};

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::UnixListener, sync::watch};

use super::serve_unix;
use crate::{
    admin::{Admin, AdminLogBackends, AdminStores, ProviderDirectory, audit::Audit},
    api::node::{Backup, ModelView, ProviderView},
    cli::admin_client::{AdminClient, AdminClientError},
    domain::{
        keys::secret::{KeyPrefix, ServiceKey},
        ledger::{AccountChange, Record},
        money::{NanoUsd, price::Price},
        wire::Protocol,
    },
    money::account_changes::{AccountChanges, direct::DirectChanges},
    sinks::{OpenLogBackend, store_log::StoreLog},
    store::{
        KeyStore,
        archive::{self, Archive},
        embedded::EmbeddedStore,
        ledger::{LedgerStore, contract::memory},
        sessions::WebSessionStore,
    },
};

mod accounts;
mod checks;
mod description;
mod homes;
mod log;
mod methods;
mod node;
mod owners;
mod rotation;
mod usage;
mod versions;

struct Fixture {
    client: AdminClient,
    store: Arc<dyn KeyStore>,
    ledger: Arc<dyn LedgerStore>,
    /// The ledger's rows.
    rows: Arc<StoreLog>,
    changes: Arc<DirectChanges>,
    prefix: KeyPrefix,
    folder: TempDir,
    _stop: watch::Sender<bool>,
}

/// One model of one provider, and its switch.
#[derive(Default)]
struct Served {
    off: std::sync::atomic::AtomicBool,
}

impl ProviderDirectory for Served {
    fn models(&self) -> Vec<ModelView> {
        vec![ModelView {
            name: "m-1".to_owned(),
            display_name: "M 1".to_owned(),
            aliases: Vec::new(),
            provider: "p".to_owned(),
            providers: vec!["p".to_owned()],
            protocols: vec![Protocol::Messages],
            context_tokens: None,
            prices: [("p".to_owned(), Arc::new(Price::free()))].into(),
        }]
    }

    fn model_named(&self, name: &str) -> Result<String, Option<String>> {
        match name {
            "m-1" | "alias" => Ok("m-1".to_owned()),
            _ => Err((name == "m-2").then(|| "m-1".to_owned())),
        }
    }

    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>> {
        ((provider, model) == ("p", "m-1")).then(|| Arc::new(Price::free()))
    }

    fn providers(&self) -> Vec<ProviderView> {
        let view = |name: &str, why_off: Option<&str>| ProviderView {
            name: name.to_owned(),
            display_name: name.to_uppercase(),
            configured: why_off.is_none(),
            unresolved: Vec::new(),
            why_off: why_off.map(str::to_owned),
            enabled: !self.off.load(std::sync::atomic::Ordering::SeqCst),
            credentials: Vec::new(),
            backends_ejected: 0,
            backends: Vec::new(),
            open_circuits: Vec::new(),
        };
        vec![view("p", None), view("off", Some("its secret env:X is absent"))]
    }

    fn switch(&self, _: &str, on: bool) -> std::io::Result<bool> {
        Ok(self.off.swap(!on, std::sync::atomic::Ordering::SeqCst) == on)
    }
}

impl Fixture {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let audit = folder.path().join("audit.jsonl");
        Self::with_audit(folder, &audit).await
    }

    /// With one account, `a`, that has no balance.
    async fn with_audit(folder: TempDir, audit: &Path) -> Self {
        let in_store =
            |rows: &Arc<StoreLog>| AdminLogBackends::new(OpenLogBackend::Store(Arc::clone(rows)), None, Arc::default());
        Self::with_homes(folder, audit, in_store).await
    }

    /// The same with other homes than the store's rows.
    async fn with_homes(folder: TempDir, audit: &Path, homes: impl FnOnce(&Arc<StoreLog>) -> AdminLogBackends) -> Self {
        let store = Arc::new(EmbeddedStore::open(&folder.path().join("store")).unwrap());
        let archive: Arc<dyn Archive> = Arc::clone(&store) as Arc<dyn Archive>;
        let web_sessions: Arc<dyn WebSessionStore> = Arc::clone(&store) as _;
        let store: Arc<dyn KeyStore> = store;
        let memory = memory::ledger();
        let ledger: Arc<dyn LedgerStore> = Arc::clone(&memory) as _;
        let rows = Arc::new(StoreLog::new(memory, Arc::clone(&ledger)));
        let changes = Arc::new(DirectChanges::new(Arc::clone(&ledger)));
        let balance = NanoUsd::ZERO;
        changes
            .submit(
                "a",
                AccountChange::Open {
                    balance,
                    at: 100,
                    operation: None,
                },
            )
            .await
            .unwrap();
        let stores = AdminStores {
            keys: Arc::clone(&store),
            ledger: Arc::clone(&ledger),
            changes: Arc::clone(&changes) as Arc<dyn AccountChanges>,
            archive: Some(archive),
            homes: homes(&rows),
            web_sessions,
        };
        let audit = Audit::open(audit).unwrap();
        let prefix = KeyPrefix::new("weir").unwrap();
        let state = Admin::new(stores, Arc::new(Served::default()), prefix.clone(), audit, None);
        let socket = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (stop, shutdown) = watch::channel(false);
        tokio::spawn(serve_unix(listener, state, shutdown));
        Self {
            client: AdminClient::new(socket),
            store,
            ledger,
            rows,
            changes,
            prefix,
            folder,
            _stop: stop,
        }
    }

    async fn get(&self, path: &str) -> Value {
        self.client.call(Method::GET, path, None).await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.client.call(Method::POST, path, Some(&body)).await.unwrap()
    }

    async fn create(&self, body: Value) -> Value {
        self.client.call(Method::POST, "/v1/keys", Some(&body)).await.unwrap()
    }

    async fn refused(&self, method: Method, path: &str, body: Option<Value>) -> String {
        match self.client.call(method, path, body.as_ref()).await {
            Err(AdminClientError::Refused(message)) => message,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    fn audit(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap()
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_lives_from_create_to_delete() {
    let admin = Fixture::new().await;
    let created = admin
        .create(json!({ "name": "laptop", "account": "a", "expires_at": "2100-01-01T00:00:00Z", "models": ["m-1"] }))
        .await;
    let (id, key) = (text(&created, "id"), text(&created, "key"));
    let digest = ServiceKey::parse(&admin.prefix, &key).unwrap().digest();
    assert!(admin.store.find(&digest).await.unwrap().record.is_some());
    assert_eq!(created["expires_at"], "2100-01-01T00:00:00Z");

    let path = format!("/v1/keys/{id}");
    let shown = admin.client.call(Method::GET, &path, None).await.unwrap();
    assert_eq!(shown["name"], "laptop");
    assert!(shown.get("key").is_none(), "the key is shown once only");

    let change = json!({ "name": "desk", "models": null, "expires_at": null });
    let updated = admin.client.call(Method::PATCH, &path, Some(&change)).await.unwrap();
    assert_eq!(
        (text(&updated, "name"), &updated["models"]),
        ("desk".to_owned(), &Value::Null)
    );

    let rotated = admin
        .client
        .call(
            Method::POST,
            &format!("{path}/rotate"),
            Some(&json!({ "overlap_seconds": 0 })),
        )
        .await
        .unwrap();
    let next = ServiceKey::parse(&admin.prefix, &text(&rotated, "key"))
        .unwrap()
        .digest();
    assert!(
        admin.store.find(&digest).await.unwrap().record.is_none(),
        "the old text no longer works"
    );
    assert!(admin.store.find(&next).await.unwrap().record.is_some());

    let revoked = admin
        .client
        .call(Method::POST, &format!("{path}/revoke"), None)
        .await
        .unwrap();
    assert_eq!(revoked["state"], "revoked");
    admin.client.call(Method::DELETE, &path, None).await.unwrap();
    assert!(
        admin
            .refused(Method::GET, &path, None)
            .await
            .contains("no key has this id")
    );

    let audit = admin.audit();
    assert_eq!(audit.lines().count(), 5);
    let noted = |record: &Record| match record {
        Record::Key { record, .. } => Some(record.revision),
        Record::KeyGone { revision, .. } => Some(*revision),
        _ => None,
    };
    let journal = admin.changes.journal();
    let revisions: Vec<u64> = journal.iter().filter_map(noted).collect();
    assert_eq!(revisions, [0, 1, 2, 3, 3], "every change is in the journal");
    assert!(matches!(&journal[3], Record::Key { digest, .. } if *digest == next));
    assert!(
        !audit.contains(&key) && !audit.contains(&text(&rotated, "key")),
        "no key text in the audit record"
    );
    assert!(audit.contains("\"operation\":\"key.rotate\"") && audit.contains("\"peer_uid\":"));
}

#[tokio::test]
async fn what_cannot_be_set_is_named() {
    let admin = Fixture::new().await;
    let cases = [
        (
            json!({ "name": "n", "account": "a", "nmae": "x" }),
            "did you mean `name`?",
        ),
        (
            json!({ "name": "n", "account": "a", "state": "active" }),
            "`state` is unknown",
        ),
        (json!({ "name": "n", "account": "a b" }), "account:"),
        (json!({ "name": "", "account": "a" }), "name:"),
        (json!({ "name": "n" }), "account: the field is missing"),
        (
            json!({ "name": "n", "account": "a", "expires_at": "2001-01-01T00:00:00Z" }),
            "in the past",
        ),
        (
            json!({ "name": "n", "account": "a", "expires_at": "tomorrow" }),
            "--expires:",
        ),
        (json!({ "name": "n", "account": "a", "models": [] }), "models:"),
        (json!({ "name": "n", "account": "a", "models": ["a\nb"] }), "models:"),
        (json!({ "name": "n", "account": "b" }), "weir account create --id b"),
        (json!({ "name": "n", "account": "a", "rpm": 0 }), "revoke the key"),
        (
            json!({ "name": "n", "account": "a", "tpm": 1_000_000_001 }),
            "tpm: give a whole",
        ),
        (
            json!({ "name": "n", "account": "a", "concurrency": "5" }),
            "concurrency:",
        ),
        (json!({ "name": "n", "account": "a", "quota_usd": 5 }), "as a string"),
        (
            json!({ "name": "n", "account": "a", "quota_usd": "-1" }),
            "zero or more",
        ),
        (
            json!({ "name": "n", "account": "a", "quota_usd": "0.0000000001" }),
            "nine decimal",
        ),
        (json!({ "name": "n", "account": "a", "reset": "yearly" }), "monthly"),
        (
            json!({ "name": "n", "account": "a", "quota_us": "5" }),
            "did you mean `quota_usd`?",
        ),
    ];
    for (body, expected) in cases {
        let message = admin.refused(Method::POST, "/v1/keys", Some(body)).await;
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(admin.audit(), "", "a refused change leaves no record");
    let message = admin.refused(Method::GET, "/v1/keys/weir-secretlooking", None).await;
    assert!(!message.contains("secretlooking"), "what was pasted is not repeated");
}

#[tokio::test]
async fn a_backup_comes_whole() {
    let admin = Fixture::new().await;
    for number in 0..300 {
        admin
            .create(json!({ "name": format!("k{number}"), "account": "a" }))
            .await;
    }
    let mut bytes = Vec::new();
    admin.client.download(&Backup {}, &mut bytes).await.unwrap();
    let (header, end) = archive::check(&*bytes).unwrap();
    assert_eq!((header.engine.as_str(), end.items), ("embedded", 300));
    let error = admin.refused(Method::GET, "/v1/backups", None).await;
    assert!(error.contains("does not exist in the admin API"), "{error}");
}

#[tokio::test]
async fn without_an_audit_record_nothing_is_changed() {
    // A device that is always full stands for a disk that is.
    let admin = Fixture::with_audit(TempDir::new().unwrap(), Path::new("/dev/full")).await;
    for (path, body) in [
        ("/v1/keys", json!({ "name": "n", "account": "a" })),
        ("/v1/accounts/a/credit", json!({ "usd": "5" })),
    ] {
        let message = admin.refused(Method::POST, path, Some(body)).await;
        assert!(message.contains("nothing was changed"), "{message}");
    }
    assert!(admin.store.list(None, 10).await.unwrap().is_empty());
    assert_eq!(admin.get("/v1/accounts/a").await["balance_nano_usd"], 0);
}

#[tokio::test]
async fn a_socket_without_a_server_says_what_to_do() {
    let folder = TempDir::new().unwrap();
    let client = AdminClient::new(folder.path().join("none.sock"));
    let error = client.call(Method::GET, "/v1/models", None).await.unwrap_err();
    assert!(error.to_string().contains("--admin unix:PATH"), "{error}");
}
