//! Tests of `weir store` on embedded stores; those on Redis are the engine's own and the integration tests'.

use tempfile::TempDir;

use super::*;
use crate::{
    cli::store::StoreArgs,
    domain::{
        ledger::{
            AccountChange, AccountView, KeySpend, Settlement, Step,
            daily_sums::{DailySum, SumSelector, SumSubject},
            ids::Tag,
        },
        money::NanoUsd,
    },
    store::{
        KeyHealer,
        archive::BackupEncoder,
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
        store.record_uses(&[(id(3), 800)]).await.unwrap();
        store.rotate(&id(3), &to(33, "abcd", Some(900))).await.unwrap();
        store.remove(&id(4)).await.unwrap();
    });
    node
}

const DAY_MS: i64 = 86_400_000;
const TODAY: i64 = START_MS / DAY_MS;

type Seen = (Option<AccountView>, KeySpend, u64, Vec<DailySum>);

/// 700 requests of one key, charged: a hundred on each of seven days, each of those with a tag of its own.
fn settled(at: &Node) -> Seen {
    let ledger = at.ledger();
    client_runtime().unwrap().block_on(async {
        for seq in 1..=700_u64 {
            let cost = NanoUsd::from_nanos(i64::try_from(seq).unwrap());
            let time_ms = START_MS - i64::try_from(seq % 7).unwrap() * DAY_MS;
            let mut row = row("acme", 1, &format!("r{seq}"), time_ms, cost);
            row.tags.extend(Tag::parse(&format!("team={}", seq / 7)));
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
            let change = AccountChange::Settle(Box::new(settlement));
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
        let mut sums = Vec::new();
        for of in [
            SumSelector::One(SumSubject::Account),
            SumSelector::Keys,
            SumSelector::Tags,
        ] {
            let some = ledger.sums("acme", TODAY - 6..=TODAY, &of).await.unwrap();
            assert_eq!(some.iter().map(|sum| sum.sums.requests).sum::<u64>(), 700);
            sums.extend(some);
        }
        (
            ledger.account("acme").await.unwrap(),
            ledger.key_spend("acme", &key_id(1)).await.unwrap(),
            ledger.watermark(&node(1), "acme").await.unwrap(),
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
    // Four keys, an account with a key of its own, and the sums of 102 subjects on seven days: more than one batch.
    assert_eq!(first.backup(&file).unwrap()["items"], 6 + 7 * 102);
    let told = second.restore(&file).unwrap();
    assert_eq!(
        (&told["items"], &told["rows_left_out"]),
        (&json!(6 + 7 * 102), &json!(0))
    );
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
fn a_restore_tells_how_many_rows_it_left_out_and_what_to_do() {
    let node = Node::new();
    let file = node.folder.path().join("backup.jsonl");
    let mut encoder = BackupEncoder::default();
    let mut bytes = encoder.header(&header("redis", None)).unwrap();
    let row = |number: u8| ArchiveItem::Row {
        row: Box::new(row("acme", 1, &format!("r{number}"), START_MS, NanoUsd::ZERO)),
    };
    for item in [ArchiveItem::KeyGone { id: id(1) }, row(1), row(2), row(3)] {
        bytes.extend(encoder.item(&item).unwrap());
    }
    bytes.extend(encoder.end().unwrap());
    std::fs::write(&file, bytes).unwrap();
    let args = RestoreArgs {
        store: node.args(),
        from: file,
        progress: ProgressArgs::default(),
    };
    let (text, value) = restore(&args).map_err(|error| error.to_string()).unwrap();
    assert_eq!((&value["items"], &value["rows_left_out"]), (&json!(1), &json!(3)));
    for said in ["1 item from ", "; 3 rows of the log were left out", "`weir log move`"] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn one_item_is_no_plural() {
    assert_eq!([0, 1, 2].map(with_items), ["0 items", "1 item", "2 items"]);
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
    EmbeddedStore::begin_restore(&folder).unwrap();
    let refused = EmbeddedStore::open(&folder).err().unwrap().to_string();
    assert!(refused.contains("did not finish"), "{refused}");
    EmbeddedStore::finish_restore(&folder).unwrap();
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
fn old_sums_go_on_an_operators_word_and_others_do_not() {
    let node = Node::new();
    let ledger = node.ledger();
    let settle = |seq: u64, time_ms| {
        let row = row("acme", 1, &format!("r{seq}"), time_ms, NanoUsd::from_nanos(1));
        let change = AccountChange::Settle(Box::new(Settlement::of(row, 0)));
        Step { seq, change }
    };
    let steps = [settle(1, DAY_MS), settle(2, START_MS)];
    let by = crate::store::ledger::contract::node(1);
    client_runtime().unwrap().block_on(async {
        ledger.apply(&by, "acme", &steps, 0).await.unwrap();
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
    assert!(refused.contains("daily sums must be kept for 180 days"), "{refused}");
    assert_eq!(prune("1970-01-02").unwrap()["sums"], 0);
    // Those of the account, and of its key.
    assert_eq!(prune("1970-01-03").unwrap()["sums"], 2);
    let of_account = SumSelector::One(SumSubject::Account);
    let ledger = node.ledger();
    for (day, many) in [(1, 0), (TODAY, 1)] {
        let sums = ledger.sums("acme", day..=day, &of_account);
        let left = client_runtime().unwrap().block_on(sums).unwrap();
        assert_eq!(left.len(), many, "day {day}");
    }
}
