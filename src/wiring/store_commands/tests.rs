//! Tests of `weir store` on embedded stores; those on Redis are the engine's own and the integration tests'.

use tempfile::TempDir;

use super::*;
use crate::{
    cli::store::StoreArgs,
    domain::{
        ledger::{
            AccountView, Change, KeySpend, Settlement, Step,
            consumption::Row,
            daily_sums::{DailySum, SumsOf},
        },
        money::NanoUsd,
    },
    store::{
        KeyHealer,
        contract::{Changing, digest, id, record, to},
        ledger::{
            LedgerStore,
            contract::{START_MS, key_id, node, row},
        },
    },
};

struct Node {
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let conf = format!(
            "[store]\nengine = \"embedded\"\n[store.embedded]\npath = \"{}\"\n[admin]\nsocket = \"{}\"\naudit = \"{}\"\n",
            path("store"),
            path("admin.sock"),
            path("audit.jsonl")
        );
        std::fs::write(folder.path().join("weir.toml"), conf).unwrap();
        Self { folder }
    }

    fn args(&self) -> StoreArgs {
        StoreArgs {
            conf: self.folder.path().join("weir.toml"),
            json: true,
        }
    }

    fn store(&self) -> EmbeddedStore {
        EmbeddedStore::open(&self.folder.path().join("store")).unwrap()
    }

    fn ledger(&self) -> EmbeddedLedger {
        EmbeddedLedger::open(&self.folder.path().join("store"), Arc::new(|| START_MS)).unwrap()
    }

    fn run(&self, command: &StoreCommand) -> Result<Value, String> {
        let mut out = Vec::new();
        run(command, &mut out).map_err(|error| error.to_string())?;
        Ok(serde_json::from_slice(&out).unwrap())
    }

    fn backup(&self, out: &Path) -> Result<Value, String> {
        self.run(&StoreCommand::Backup(BackupArgs {
            store: self.args(),
            out: out.to_owned(),
            force: false,
            progress: ProgressArgs::default(),
        }))
    }

    fn restore(&self, from: &Path) -> Result<Value, String> {
        self.run(&StoreCommand::Restore(RestoreArgs {
            store: self.args(),
            from: from.to_owned(),
            progress: ProgressArgs::default(),
        }))
    }
}

/// A store with three keys, of which one is revoked and one has two texts, and one that was deleted.
fn filled() -> Node {
    let node = Node::new();
    let store = node.store();
    client_runtime().unwrap().block_on(async {
        for number in 1..=4 {
            store.create(&digest(number), &record(number, 100)).await.unwrap();
        }
        store.revoke(&id(2), 700).await.unwrap();
        store.touch(&[(id(3), 800)]).await.unwrap();
        store.rotate(&id(3), &to(33, "abcd", Some(900))).await.unwrap();
        store.remove(&id(4)).await.unwrap();
    });
    node
}

type Seen = (Option<AccountView>, KeySpend, u64, Vec<Row>, Vec<DailySum>);

/// 700 requests of one key, charged.
fn settled(at: &Node) -> Seen {
    let ledger = at.ledger();
    client_runtime().unwrap().block_on(async {
        for seq in 1..=700_u64 {
            let cost = NanoUsd::from_nanos(i64::try_from(seq).unwrap());
            let row = row("acme", 1, &format!("r{seq}"), START_MS, cost);
            let settlement = Settlement {
                lease: None,
                request: row.request_id.clone(),
                key: row.key_id.clone(),
                at_ms: START_MS,
                tokens_estimated: 0,
                tokens_used: 0,
                cost,
                row: Some(row.into()),
            };
            let change = Change::Settle(Box::new(settlement));
            ledger
                .apply(&node(1), "acme", &[Step { seq, change }], 0)
                .await
                .unwrap();
        }
        ledger.flush().await.unwrap();
    });
    drop(ledger);
    seen(at)
}

fn seen(at: &Node) -> Seen {
    let ledger = at.ledger();
    client_runtime().unwrap().block_on(async {
        let rows = ledger.rows("acme", START_MS / 86_400_000, 0, 1000).await.unwrap();
        assert_eq!(rows.len(), 700);
        let day = START_MS / 86_400_000;
        let sums = ledger.sums("acme", day..=day, &SumsOf::Keys).await.unwrap();
        assert_eq!(sums[0].sums.requests, 700);
        (
            ledger.account("acme").await.unwrap(),
            ledger.key_spend("acme", &key_id(1)).await.unwrap(),
            ledger.watermark(&node(1), "acme").await.unwrap(),
            rows,
            sums,
        )
    })
}

fn keys(store: &EmbeddedStore) -> Vec<crate::store::KeyView> {
    client_runtime().unwrap().block_on(store.list(None, 10)).unwrap()
}

#[test]
fn a_backup_is_put_back_into_an_empty_store() {
    let (first, second) = (filled(), Node::new());
    let file = first.folder.path().join("backup.jsonl");
    let spent = settled(&first);
    // Four keys, an account with a key of its own, and 700 rows: more than one batch.
    assert_eq!(first.backup(&file).unwrap()["items"], 706);
    assert_eq!(second.restore(&file).unwrap()["items"], 706);
    assert_eq!(seen(&second), spent);
    let store = second.store();
    assert_eq!(keys(&store), keys(&first.store()));
    let (digest, record) = (digest(4), record(4, 100));
    let heal = store.heal(&digest, &record);
    client_runtime().unwrap().block_on(heal).unwrap();
    assert_eq!(keys(&store).len(), 3, "a deleted key stays deleted");
    drop(store);
    let again = second.restore(&file).unwrap_err();
    assert!(again.contains("not empty"), "{again}");
}

#[test]
fn a_backup_that_is_not_whole_changes_nothing() {
    let (first, second) = (filled(), Node::new());
    let file = first.folder.path().join("backup.jsonl");
    first.backup(&file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("acme", "acne", 1)).unwrap();
    let refused = second.restore(&file).unwrap_err();
    assert!(refused.contains("damaged"), "{refused}");
    assert!(keys(&second.store()).is_empty());
}

#[test]
fn a_store_that_is_open_is_left_alone() {
    let (first, second) = (filled(), Node::new());
    let file = first.folder.path().join("backup.jsonl");
    first.backup(&file).unwrap();
    let _open = second.store();
    let refused = second.restore(&file).unwrap_err();
    assert!(refused.contains("another weir process"), "{refused}");
    let refused = second.backup(&file.with_extension("2")).unwrap_err();
    assert!(refused.contains("another weir process"), "{refused}");
    assert_eq!(
        std::fs::read_dir(first.folder.path()).unwrap().count(),
        3,
        "no part is left"
    );
}

#[test]
fn a_restore_that_was_cut_short_is_no_store() {
    let node = filled();
    let folder = node.folder.path().join("store");
    EmbeddedStore::restoring(&folder).unwrap();
    let refused = EmbeddedStore::open(&folder).err().unwrap().to_string();
    assert!(refused.contains("did not finish"), "{refused}");
    EmbeddedStore::restored(&folder).unwrap();
    assert_eq!(keys(&node.store()).len(), 3);
}

#[test]
fn a_backup_replaces_no_file_unless_told() {
    let node = filled();
    let file = node.folder.path().join("backup.jsonl");
    std::fs::write(&file, "precious").unwrap();
    let refused = node.backup(&file).unwrap_err();
    assert!(refused.contains("--force"), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let forced = StoreCommand::Backup(BackupArgs {
        store: node.args(),
        out: file.clone(),
        force: true,
        progress: ProgressArgs::default(),
    });
    assert_eq!(node.run(&forced).unwrap()["items"], 4);
}

#[test]
fn an_embedded_store_needs_no_setting_up() {
    let node = Node::new();
    let init = StoreCommand::Init(InitArgs {
        store: node.args(),
        adopt: false,
    });
    assert_eq!(node.run(&init).unwrap()["changed"], false);
}

#[test]
fn old_rows_go_on_an_operators_word_and_others_do_not() {
    let node = Node::new();
    let ledger = node.ledger();
    let settle = |seq: u64, at_ms| {
        let row = row("acme", 1, &format!("r{seq}"), at_ms, NanoUsd::from_nanos(1));
        let settlement = Settlement {
            lease: None,
            request: row.request_id.clone(),
            key: row.key_id.clone(),
            at_ms,
            tokens_estimated: 0,
            tokens_used: 0,
            cost: row.cost_nano_usd,
            row: Some(row.into()),
        };
        let change = Change::Settle(Box::new(settlement));
        Step { seq, change }
    };
    client_runtime().unwrap().block_on(async {
        let steps = [settle(1, 86_400_000), settle(2, START_MS)];
        ledger
            .apply(&crate::store::ledger::contract::node(1), "acme", &steps, 0)
            .await
            .unwrap();
        ledger.flush().await.unwrap();
    });
    drop(ledger);
    let prune = |before: &str| {
        node.run(&StoreCommand::Prune(PruneArgs {
            store: node.args(),
            before: before.parse().unwrap(),
        }))
    };
    let refused = prune("9000-01-01").unwrap_err();
    assert!(refused.contains("rows are kept for 180 days"), "{refused}");
    assert_eq!(prune("1970-01-02").unwrap()["rows"], 0);
    assert_eq!(prune("1970-01-03").unwrap()["rows"], 1);
    let rows = node.ledger();
    let rows = client_runtime()
        .unwrap()
        .block_on(rows.rows("acme", START_MS / 86_400_000, 0, 9));
    assert_eq!(rows.unwrap().len(), 1);
}
