//! Random programs: whatever is asked of the stores in whatever order, each answers as the plain model does.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::model::ModelStore;
use super::{digest, id, record, to};
use crate::domain::ledger::KeyTermsChange;
use crate::store::embedded::EmbeddedStore;
use crate::store::redis::test_server::TestServer;
use crate::store::{Changes, KeyChange, KeyStore, KeyView, LIST_KEYS_MAX, Lookup, StoreError};

const PROGRAMS: u32 = 24;
const OPERATIONS_MAX: usize = 40;
/// So few keys that operations meet.
const KEYS: u8 = 5;
const DIGESTS: u8 = 7;

#[derive(Clone, Debug)]
enum Operation {
    Create {
        key: u8,
        digest: u8,
    },
    Find(u8),
    ById(u8),
    List {
        after: Option<u8>,
        limit: usize,
    },
    Update {
        key: u8,
        change: KeyChange,
    },
    Rotate {
        key: u8,
        digest: u8,
        hint: String,
        overlap_until: Option<i64>,
    },
    EndOverlap(u8),
    Revoke {
        key: u8,
        at: i64,
    },
    Delete(u8),
    Heal {
        key: u8,
        digest: u8,
        former: Option<u8>,
        revision: u64,
        revoked: bool,
    },
    HealGone {
        key: u8,
        revision: u64,
    },
    Touch(Vec<(u8, i64)>),
    ChangesSince(u64),
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Done(Result<(), StoreError>),
    Lookup(Result<Lookup, StoreError>),
    Found(Result<Option<KeyView>, StoreError>),
    View(Result<KeyView, StoreError>),
    Views(Result<Vec<KeyView>, StoreError>),
    Changes(Result<Changes, StoreError>),
}

fn operation() -> impl Strategy<Value = Operation> {
    let models = option::of(option::of(vec("[a-c]{0,2}", 0..3)));
    let change = (option::of("\\PC{0,4}"), option::of(option::of(-9..9_i64)), models);
    let change = change.prop_map(|(name, expires_at, models)| KeyChange {
        name,
        expires_at,
        models,
        terms: KeyTermsChange::default(),
    });
    prop_oneof![
        4 => (0..KEYS, 0..DIGESTS).prop_map(|(key, digest)| Operation::Create { key, digest }),
        2 => (0..DIGESTS).prop_map(Operation::Find),
        1 => (0..KEYS).prop_map(Operation::ById),
        1 => (option::of(0..KEYS), 0..4_usize).prop_map(|(after, limit)| Operation::List { after, limit }),
        2 => (0..KEYS, change).prop_map(|(key, change)| Operation::Update { key, change }),
        3 => (0..KEYS, 0..DIGESTS, "[a-z]{4}", option::of(0..9_i64))
            .prop_map(|(key, digest, hint, overlap_until)| Operation::Rotate { key, digest, hint, overlap_until }),
        1 => (0..KEYS).prop_map(Operation::EndOverlap),
        2 => (0..KEYS, -5..5_i64).prop_map(|(key, at)| Operation::Revoke { key, at }),
        1 => (0..KEYS).prop_map(Operation::Delete),
        2 => (0..KEYS, 0..DIGESTS, option::of(1..DIGESTS), 0..5_u64, any::<bool>()).prop_map(
            |(key, digest, apart, revision, revoked)| {
                // A key's two texts are never the same.
                let former = apart.map(|apart| (digest + apart) % DIGESTS);
                Operation::Heal { key, digest, former, revision, revoked }
            }),
        1 => (0..KEYS, 0..5_u64).prop_map(|(key, revision)| Operation::HealGone { key, revision }),
        1 => vec((0..KEYS, -3..9_i64), 0..5).prop_map(Operation::Touch),
        2 => (0..45_u64).prop_map(Operation::ChangesSince),
    ]
}

/// When a key is made, which never changes; some are made at one time.
fn created_at(key: u8) -> i64 {
    i64::from(key % 3) - 1
}

async fn answer(store: &dyn KeyStore, operation: &Operation) -> Outcome {
    match operation {
        Operation::Create { key, digest: text } => {
            Outcome::Done(store.create(&digest(*text), &record(*key, created_at(*key))).await)
        }
        Operation::Find(text) => Outcome::Lookup(store.find(&digest(*text)).await),
        Operation::ById(key) => Outcome::Found(store.by_id(&id(*key)).await),
        Operation::List { after, limit } => Outcome::Views(store.list(after.map(id).as_ref(), *limit).await),
        Operation::Update { key, change } => Outcome::View(store.update(&id(*key), change).await),
        Operation::Rotate {
            key,
            digest: text,
            hint,
            overlap_until,
        } => Outcome::View(store.rotate(&id(*key), &to(*text, hint, *overlap_until)).await),
        Operation::EndOverlap(key) => Outcome::View(store.end_overlap(&id(*key)).await),
        Operation::Revoke { key, at } => Outcome::View(store.revoke(&id(*key), *at).await),
        Operation::Delete(key) => Outcome::View(store.delete(&id(*key)).await),
        Operation::Heal {
            key,
            digest: text,
            former,
            revision,
            revoked,
        } => {
            let mut told = record(*key, created_at(*key));
            if let Some(former) = former {
                told = told.rotated(&digest(*former), &to(*text, "abcd", Some(9)));
            }
            told.revision = *revision;
            if *revoked {
                told = told.revoked(9);
            }
            Outcome::Done(store.heal(&digest(*text), &told).await)
        }
        Operation::HealGone { key, revision } => Outcome::Done(store.heal_gone(&id(*key), *revision).await),
        Operation::Touch(used) => {
            let used: Vec<_> = used.iter().map(|(key, at)| (id(*key), *at)).collect();
            Outcome::Done(store.touch(&used).await)
        }
        Operation::ChangesSince(version) => Outcome::Changes(store.changes_since(*version).await),
    }
}

async fn compare(name: &str, store: &dyn KeyStore, program: &[Operation]) {
    let model = ModelStore::new();
    for (step, operation) in program.iter().enumerate() {
        let expected = answer(&model, operation).await;
        let given = answer(store, operation).await;
        assert_eq!(given, expected, "{name}, step {step}: {operation:?}");
    }
    same_keys(name, store, &model).await;
}

/// Whether two stores hold the same, without regard to how they got there.
async fn same_keys(name: &str, store: &dyn KeyStore, model: &dyn KeyStore) {
    let [given, expected] = [
        store.list(None, LIST_KEYS_MAX).await,
        model.list(None, LIST_KEYS_MAX).await,
    ];
    assert_eq!(given, expected, "{name}, all keys");
    for text in 0..DIGESTS {
        let [given, expected] = [store.find(&digest(text)).await, model.find(&digest(text)).await];
        assert_eq!(given.unwrap().record, expected.unwrap().record, "{name}, digest {text}");
    }
}

#[test]
fn every_store_answers_as_the_model_does() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(TestServer::start()).map(Arc::new);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: PROGRAMS,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let namespaces = std::cell::Cell::new(0);
    let outcome = runner.run(&vec(operation(), 0..=OPERATIONS_MAX), |program| {
        namespaces.set(namespaces.get() + 1);
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let store = EmbeddedStore::open(folder.path()).unwrap();
            compare("embedded", &store, &program).await;
            drop(store);
            let model = ModelStore::new();
            for operation in &program {
                answer(&model, operation).await;
            }
            let reopened = EmbeddedStore::open(folder.path()).unwrap();
            same_keys("embedded, opened again", &reopened, &model).await;
            if let Some(server) = &server {
                let joined = server.join(&format!("program{}", namespaces.get())).await;
                compare("redis", &*joined.store, &program).await;
            }
        });
        Ok(())
    });
    outcome.unwrap();
}
