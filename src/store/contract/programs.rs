//! Random programs: for any order of operations, each store must answer like the reference model.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::model::ModelStore;
use super::{digest, id, record, to};
use crate::domain::Version;
use crate::domain::keys::Rotation;
use crate::domain::keys::change::{ChangeAuthor, ChangePrecondition, KeyChange, KeyUpdate};
use crate::domain::ledger::{KeyTermsChange, QuotaReset, RateLimitsChange};
use crate::store::embedded::EmbeddedStore;
use crate::store::redis::test_server::TestServer;
use crate::store::{ChangeError, Changes, KeyLookup, KeyStore, KeyView, LIST_KEYS_MAX, StoreError};

const PROGRAMS: u32 = 24;
const OPERATIONS_MAX: usize = 40;
/// The number of keys in a program. It is small, so that several operations concern the same key.
const KEYS: u8 = 5;
const DIGESTS: u8 = 7;

#[derive(Clone, Debug)]
enum Operation {
    Create {
        key: u8,
        digest: u8,
        revision: u64,
    },
    Find(u8),
    ById(u8),
    List {
        after: Option<u8>,
        limit: usize,
    },
    Change {
        key: u8,
        change: KeyChange,
        from: Seen,
    },
    Delete {
        key: u8,
        from: Seen,
    },
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

/// The state that a change requires of a key.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Anything,
    /// The change expects the current version of the key.
    Present,
    /// The change expects a version that the key never has.
    Stale,
    Text(u8),
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Done(Result<(), StoreError>),
    Lookup(Result<KeyLookup, StoreError>),
    Found(Result<Option<KeyView>, StoreError>),
    Changed(Result<KeyView, ChangeError>),
    Deleted(Result<Option<KeyView>, ChangeError>),
    Views(Result<Vec<KeyView>, StoreError>),
    Changes(Result<Changes, StoreError>),
}

fn change() -> impl Strategy<Value = KeyChange> {
    let models = option::of(option::of(vec("[a-c]{0,2}", 0..3)));
    let limits = (option::of(option::of(0..3_u64)), any::<Option<bool>>());
    let update = (
        option::of("\\PC{0,4}"),
        option::of(option::of(-9..9_i64)),
        models,
        limits,
    );
    let update = update.prop_map(|(name, expires_at, models, (rpm, daily))| KeyUpdate {
        name,
        expires_at,
        models,
        terms: KeyTermsChange {
            reset: daily.map(|daily| if daily { QuotaReset::Daily } else { QuotaReset::None }),
            rates: RateLimitsChange {
                rpm,
                ..RateLimitsChange::default()
            },
            ..KeyTermsChange::default()
        },
    });
    let by = prop_oneof![Just(ChangeAuthor::Operator), Just(ChangeAuthor::Owner)];
    let rotation = (0..DIGESTS, "[a-z]{4}", option::of(0..9_i64));
    prop_oneof![
        3 => (update, by).prop_map(|(update, by)| KeyChange::Update { update, by }),
        3 => rotation.prop_map(|(text, hint, overlap_until)| KeyChange::Rotate(Rotation { digest: digest(text), hint, at: 0, overlap_until })),
        1 => Just(KeyChange::EndOverlap),
        2 => (-5..5_i64).prop_map(|at| KeyChange::Revoke { at }),
    ]
}

fn from() -> impl Strategy<Value = Seen> {
    prop_oneof![
        4 => Just(Seen::Anything),
        2 => Just(Seen::Present),
        1 => Just(Seen::Stale),
        2 => (0..DIGESTS).prop_map(Seen::Text),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0..KEYS, 0..DIGESTS, 0..2_u64).prop_map(|(key, digest, revision)| Operation::Create { key, digest, revision }),
        2 => (0..DIGESTS).prop_map(Operation::Find),
        1 => (0..KEYS).prop_map(Operation::ById),
        1 => (option::of(0..KEYS), 0..4_usize).prop_map(|(after, limit)| Operation::List { after, limit }),
        8 => (0..KEYS, change(), from()).prop_map(|(key, change, from)| Operation::Change { key, change, from }),
        1 => (0..KEYS, from()).prop_map(|(key, from)| Operation::Delete { key, from }),
        2 => (0..KEYS, 0..DIGESTS, option::of(1..DIGESTS), 0..5_u64, any::<bool>()).prop_map(
            |(key, digest, apart, revision, revoked)| {
                // The two secrets of a key always differ.
                let former = apart.map(|apart| (digest + apart) % DIGESTS);
                Operation::Heal { key, digest, former, revision, revoked }
            }),
        1 => (0..KEYS, 0..5_u64).prop_map(|(key, revision)| Operation::HealGone { key, revision }),
        1 => vec((0..KEYS, -3..9_i64), 0..5).prop_map(Operation::Touch),
        2 => (0..45_u64).prop_map(Operation::ChangesSince),
    ]
}

/// Returns the creation time of the key with this number. It is the same at every call. Some keys have the same creation time.
fn created_at(key: u8) -> i64 {
    i64::from(key % 3) - 1
}

async fn made_from(store: &dyn KeyStore, key: u8, from: Seen) -> ChangePrecondition {
    let stale = Version::new(0, 0);
    match from {
        Seen::Anything => ChangePrecondition::Anything,
        Seen::Present => {
            let view = store.by_id(&id(key)).await.unwrap();
            ChangePrecondition::Version(view.map_or(stale, |view| view.version()))
        }
        Seen::Stale => ChangePrecondition::Version(stale),
        Seen::Text(text) => ChangePrecondition::Text(digest(text)),
    }
}

async fn answer(store: &dyn KeyStore, operation: &Operation) -> Outcome {
    match operation {
        Operation::Create {
            key,
            digest: text,
            revision,
        } => {
            let mut made = record(*key, created_at(*key));
            made.revision = *revision;
            Outcome::Done(store.create(&digest(*text), &made).await)
        }
        Operation::Find(text) => Outcome::Lookup(store.find(&digest(*text)).await),
        Operation::ById(key) => Outcome::Found(store.by_id(&id(*key)).await),
        Operation::List { after, limit } => Outcome::Views(store.list(after.map(id).as_ref(), *limit).await),
        Operation::Change { key, change, from } => {
            let from = made_from(store, *key, *from).await;
            Outcome::Changed(store.change(&id(*key), change, &from).await)
        }
        Operation::Delete { key, from } => {
            let from = made_from(store, *key, *from).await;
            Outcome::Deleted(store.delete(&id(*key), &from).await)
        }
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
            Outcome::Done(store.record_uses(&used).await)
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

/// Checks that two stores have the same content, even if they reached it differently.
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
