//! Tests of `weir store` on embedded stores; those on Redis are the engine's own and the integration tests'.

use tempfile::TempDir;

use super::*;
use crate::{
    cli::store::StoreArgs,
    store::contract::{digest, id, record},
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

    fn run(&self, command: &StoreCommand) -> Result<Value, String> {
        let mut out = Vec::new();
        run(command, &mut out).map_err(|error| error.to_string())?;
        Ok(serde_json::from_slice(&out).unwrap())
    }

    fn backup(&self, out: &Path) -> Result<Value, String> {
        self.run(&StoreCommand::Backup(BackupArgs {
            store: self.args(),
            out: out.to_owned(),
        }))
    }

    fn restore(&self, from: &Path) -> Result<Value, String> {
        self.run(&StoreCommand::Restore(RestoreArgs {
            store: self.args(),
            from: from.to_owned(),
        }))
    }
}

/// A store with three keys, one of them revoked, and one deleted.
fn filled() -> Node {
    let node = Node::new();
    let store = node.store();
    client_runtime().unwrap().block_on(async {
        for number in 1..=4 {
            store.create(&digest(number), &record(number, 100)).await.unwrap();
        }
        store.revoke(&id(2), 700).await.unwrap();
        store.touch(&[(id(3), 800)]).await.unwrap();
        store.delete(&id(4)).await.unwrap();
    });
    node
}

fn keys(store: &EmbeddedStore) -> Vec<crate::store::KeyView> {
    client_runtime().unwrap().block_on(store.list(None, 10)).unwrap()
}

#[test]
fn a_backup_is_put_back_into_an_empty_store() {
    let (first, second) = (filled(), Node::new());
    let file = first.folder.path().join("backup.jsonl");
    assert_eq!(first.backup(&file).unwrap()["items"], 4);
    assert_eq!(second.restore(&file).unwrap()["items"], 4);
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
fn an_embedded_store_needs_no_setting_up() {
    let node = Node::new();
    let init = StoreCommand::Init(InitArgs {
        store: node.args(),
        adopt: false,
    });
    assert_eq!(node.run(&init).unwrap()["changed"], false);
}
