//! The users that docs/redis.md grants rights to keep the contracts, in each mode.

use std::sync::Arc;

use super::*;
use crate::domain::keys::secret::Secret;
use crate::domain::ledger::{AccountChange, Step};
use crate::domain::money::NanoUsd;
use crate::store::ledger::contract::{self as ledger_contract, TestClock, ledger_suite, lists_suite, node};
use crate::store::ledger::stability_contract::stability_suite;
use crate::store::ledger::{LedgerStore, LogLists};
use crate::store::redis::link::{CallPolicy, KeyNaming};
use crate::store::redis::scripts::RedisScript;
use crate::store::redis::test_server::AMPLE_BUDGET;
use crate::store::redis::test_server::Watched;
use crate::store::redis::test_server::cluster::TestCluster;
use crate::store::redis::{KEY_NAMES, RedisLedger, RedisMode, RedisSettings};
use crate::store::{StoreTrouble, StoreWarning};

const DOCUMENT: &str = include_str!("../../../../docs/redis.md");
pub(super) const PASSWORD: &str = "pw";

/// The words of the `ACL SETUSER` line of docs/redis.md below a heading, for this user and namespace.
pub(super) fn documented(heading: &str, user: &str, namespace: &str) -> Vec<String> {
    let (_, rest) = DOCUMENT.split_once(&format!("# {heading}\n")).expect(heading);
    // A line that goes on ends with a backslash.
    let text: Vec<&str> = rest
        .lines()
        .take_while(|line| !line.is_empty() && !line.starts_with(['#', '`']))
        .collect();
    let line = text.join(" ").replace('\\', " ");
    let words = line.split_whitespace().map(|word| match word {
        "weir" => user.to_owned(),
        ">PASSWORD" => format!(">{PASSWORD}"),
        "'~{weir:*'" => format!("~{{{namespace}:*"),
        "'&+switch-master'" => "&+switch-master".to_owned(),
        word => word.to_owned(),
    });
    words.collect()
}

pub(super) const DATA: &str = "standalone and sentinel, at every server";
pub(super) const SENTINEL: &str = "sentinel, at every sentinel";
pub(super) const CLUSTER: &str = "cluster, at every node";

pub(super) async fn grant(servers: &[TestServer], words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for server in servers {
        let () = server.ask(&words).await;
    }
}

/// Settings with the login of a user who is called like the namespace.
pub(super) fn login(settings: RedisSettings) -> RedisSettings {
    RedisSettings {
        username: Some(settings.namespace.clone()),
        password: Some(Secret::new(PASSWORD)),
        ..settings
    }
}

/// All contracts, each behaviour by a user of its own who has what is documented and nothing else.
macro_rules! all_contracts {
    ($join:expr) => {
        let join = $join;
        suite!(in_turn join);
        stability_suite!(in_turn join);
        let ledger = async |namespace: &str| {
            // Behaviours of the suites may be called alike.
            let joined: Joined = join(&format!("ledger_{namespace}")).await;
            let clock = TestClock::new();
            let store = Arc::new(RedisLedger::with_clock(joined.store.clone(), clock.source()));
            let (lists, kept) = (Some(store.clone() as Arc<dyn LogLists>), Box::new(joined));
            ledger_contract::Fixture { store, lists, clock, failover: None, kept }
        };
        ledger_suite!(in_turn ledger);
        lists_suite!(in_turn ledger);
        let joined: Joined = join("sessions").await;
        let now = clock::unix_seconds();
        crate::store::sessions::contract::sessions_are_remembered_by_their_latest_word(&*joined.store, now).await;
        crate::store::sessions::web_sessions_contract::web_sessions_are_kept(&*joined.store).await;
        let joined: Joined = join("sign_ins").await;
        crate::store::sessions::sign_ins_contract::documents_change_all_at_once_or_not_at_all(&*joined.store).await;
        let joined: Joined = join("tokens").await;
        crate::store::sessions::sign_ins_contract::an_access_token_is_found_until_it_ends(&*joined.store).await;
        let joined: Joined = join("backup").await;
        a_backup_is_taken_and_put_back(&joined).await;
        assert_eq!(joined.store.trouble(), StoreTrouble::default());
        assert!(!joined.store.warnings().contains(&StoreWarning::MissingRights));
    };
}

async fn a_backup_is_taken_and_put_back(joined: &Joined) {
    const ITEMS_MAX: usize = 100;
    let store = &joined.store;
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let ledger = RedisLedger::new(store.clone(), true);
    let change = AccountChange::Open {
        balance: NanoUsd::from_nanos(5),
        at: 1,
        operation: None,
    };
    ledger
        .apply(&node(1), "acme", &[Step { seq: 1, change }], 0)
        .await
        .unwrap();
    let (keys, accounts) = (
        store.list(None, 9).await.unwrap(),
        ledger.accounts(None, 9).await.unwrap(),
    );
    let (to, mut from) = tokio::sync::mpsc::channel(ITEMS_MAX);
    store.dump(to.clone()).await.unwrap();
    ledger.dump(to).await.unwrap();
    let mut items = Vec::new();
    while let Some(item) = from.recv().await {
        items.push(item);
    }
    let generation = store.known_generation().await.unwrap().unwrap();
    // As if it had been emptied: each key by its name, for the user may use no other.
    let script = RedisScript::new("for _, key in ipairs(KEYS) do redis.call('DEL', key) end return {'ok'}");
    let families: [(&str, &[&str]); 3] = [
        ("{backup:keys}", &KEY_NAMES),
        ("{backup:a:acme}", &["state"]),
        ("{backup:accounts}", &["index"]),
    ];
    for (family, names) in families {
        let mut call = script.call();
        for name in names {
            call.key(format!("{family}:{name}"));
        }
        let effort = CallPolicy::Write(AMPLE_BUDGET);
        store.link.call(&call, effort, KeyNaming::Named).await.unwrap();
    }
    assert!(store.is_empty().await.unwrap() && store.list(None, 9).await.is_err());
    store.load(&items).await.unwrap();
    ledger.load(&items).await.unwrap();
    ledger.finish_restore(Some(&generation)).await.unwrap();
    assert_eq!(store.finish_restore(Some(&generation)).await, Ok(InitOutcome::Made));
    assert_eq!(store.list(None, 9).await.unwrap(), keys);
    assert_eq!(ledger.accounts(None, 9).await.unwrap(), accounts);
}

#[tokio::test]
async fn the_least_user_of_a_server_keeps_the_contracts() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let servers = [server];
    let join = async |namespace: &str| {
        grant(&servers, &documented(DATA, namespace, namespace)).await;
        Joined::with(&login(servers[0].settings(namespace, AMPLE_BUDGET))).await
    };
    all_contracts!(join);
}

#[tokio::test]
async fn the_least_user_of_a_cluster_keeps_the_contracts() {
    let Some(cluster) = TestCluster::start().await else {
        return;
    };
    let join = async |namespace: &str| {
        grant(&cluster.servers, &documented(CLUSTER, namespace, namespace)).await;
        Joined::with(&login(cluster.settings(namespace, AMPLE_BUDGET))).await
    };
    all_contracts!(join);
}

#[tokio::test]
async fn the_least_users_of_sentinels_and_their_servers_keep_the_contracts() {
    let Some(watched) = Watched::start(1, 1).await else {
        return;
    };
    grant(&watched.sentinels, &documented(SENTINEL, "watcher", "")).await;
    let join = async |namespace: &str| {
        grant(&watched.servers, &documented(DATA, namespace, namespace)).await;
        Joined::with(&sentinel_login(&watched, namespace)).await
    };
    all_contracts!(join);
}

pub(super) fn sentinel_login(watched: &Watched, namespace: &str) -> RedisSettings {
    let mut settings = login(watched.settings(namespace, AMPLE_BUDGET));
    if let RedisMode::Sentinel { username, password, .. } = &mut settings.mode {
        *username = Some("watcher".to_owned());
        *password = Some(Secret::new(PASSWORD));
    }
    settings
}
