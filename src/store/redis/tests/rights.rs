//! Users with too few rights: each right that is missing is named, at the start and later.

use super::least::{CLUSTER, DATA, PASSWORD, documented, grant, login, sentinel_login};
use super::*;
use crate::domain::keys::secret::Secret;
use crate::store::ledger::LedgerStore;
use crate::store::redis::rights::RequiredRights;
use crate::store::redis::test_server::AMPLE_BUDGET;
use crate::store::redis::test_server::Watched;
use crate::store::redis::test_server::cluster::TestCluster;
use crate::store::redis::{RedisLedger, RedisMode, RedisSettings};
use crate::store::{StoreTrouble, StoreWarning};

/// The rights in a line of docs/redis.md.
fn rights_in(words: &[String]) -> BTreeSet<String> {
    words.iter().filter(|word| word.starts_with('+')).cloned().collect()
}

fn settings_of(mode: RedisMode, database: i64) -> RedisSettings {
    RedisSettings {
        mode,
        nodes: vec!["127.0.0.1:1".to_owned()],
        username: Some("weir".to_owned()),
        password: Some(Secret::new(PASSWORD)),
        database,
        tls: false,
        ca_file: None,
        namespace: "weir".to_owned(),
        budget: AMPLE_BUDGET,
        queue: AMPLE_BUDGET,
    }
}

#[test]
fn the_rights_that_are_documented_are_those_that_are_asked_about() {
    let asked = |mode, database| RequiredRights::new(&settings_of(mode, database)).least();
    let written = |heading| rights_in(&documented(heading, "weir", "weir"));
    assert_eq!(asked(RedisMode::Standalone, 0), written(DATA));
    assert_eq!(asked(RedisMode::Cluster, 0), written(CLUSTER));
    let mut numbered = written(DATA);
    numbered.insert("+select".to_owned());
    assert_eq!(asked(RedisMode::Standalone, 7), numbered);
}

#[test]
fn every_command_of_a_script_is_asked_about() {
    let asked = RequiredRights::new(&settings_of(RedisMode::Standalone, 0)).least();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis");
    let mut folders = vec![folder];
    let mut called = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "lua") {
                let text = std::fs::read_to_string(&path).unwrap();
                for call in text
                    .split("redis.call(")
                    .skip(1)
                    .chain(text.split("redis.pcall(").skip(1))
                {
                    let name = call.strip_prefix('\'').and_then(|rest| rest.split('\'').next());
                    let name = name.unwrap_or_else(|| panic!("{}: a call without a plain name", path.display()));
                    called.insert(format!("+{}", name.to_lowercase()));
                }
            }
        }
    }
    assert!(called.len() > 20, "{called:?}");
    let missing: Vec<&String> = called.difference(&asked).collect();
    assert!(
        missing.is_empty(),
        "add them to SCRIPTED and to docs/redis.md: {missing:?}"
    );
    // And none is asked for that nothing needs.
    let others = [
        "+client|tracking",
        "+evalsha",
        "+info",
        "+multi",
        "+ping",
        "+script|load",
    ];
    let needed: BTreeSet<String> = called.into_iter().chain(others.map(str::to_owned)).collect();
    assert_eq!(asked, needed);
}

#[tokio::test]
async fn a_user_with_all_rights_is_asked_in_words_that_the_server_takes() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let errors = async || -> u64 {
        let stats: String = server.ask(&["INFO", "stats"]).await;
        let line = stats.lines().find_map(|line| line.strip_prefix("total_error_replies:"));
        line.unwrap().parse().unwrap()
    };
    let first = errors().await;
    // What asking costs by itself.
    let asked = errors().await - first;
    let joined = server.join("weir").await;
    assert_eq!(joined.store.trouble(), StoreTrouble::default());
    assert_eq!(
        errors().await,
        first + 2 * asked,
        "a healthy start is no error at the server"
    );
    assert_eq!(
        server.ask::<Vec<String>>(&["KEYS", "*rights*"]).await,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn each_missing_right_is_named_at_the_start() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let servers = [server];
    let all = documented(DATA, "weir", "weir");
    for right in rights_in(&all) {
        let words: Vec<String> = all.iter().filter(|word| **word != right).cloned().collect();
        grant(&servers, &["ACL", "SETUSER", "weir", "reset"].map(str::to_owned)).await;
        grant(&servers, &words).await;
        let joined = Joined::begin(&login(servers[0].settings("weir", AMPLE_BUDGET)));
        let store = &joined.store;
        until(&format!("{right} is said to be missing"), async || {
            !store.trouble().details.is_empty()
        })
        .await;
        let said = store.trouble().details.join("; ");
        assert!(
            said.contains("user \"weir\" may not run") && said.ends_with(&format!(": grant {right}")),
            "{right}: {said}"
        );
        assert!(store.warnings().contains(&StoreWarning::MissingRights), "{right}");
        let is_served = ["+info", "+client|tracking", "+multi"].contains(&right.as_str());
        assert_eq!(store.trouble().refused, !is_served, "{right}");
        if is_served {
            until("it serves", async || store.init(AdoptPolicy::Refuse).await.is_ok()).await;
        } else {
            until("calls are told too", async || {
                store.by_id(&id(1)).await.unwrap_err().to_string().contains(&right)
            })
            .await;
        }
    }
}

#[tokio::test]
async fn all_that_is_missing_is_named_at_once_with_the_keys() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let words = [
        "ACL", "SETUSER", "weir", "on", ">pw", "~other:*", "+@all", "-hset", "-info", "-rpush", "-script",
    ];
    let () = server.ask(&words).await;
    let joined = Joined::begin(&login(server.settings("weir", AMPLE_BUDGET)));
    until("it is refused", async || joined.store.trouble().refused).await;
    let details = joined.store.trouble().details;
    let [refusal, complaint] = details.as_slice() else {
        panic!("{details:?}")
    };
    assert!(
        refusal.ends_with(
            "user \"weir\" may not run \"hset\", \"rpush\", \"script|load\" and may not use all keys that begin with \
             \"{weir:\": grant +hset +rpush +script|load ~{weir:*"
        ),
        "{refusal}"
    );
    assert!(complaint.ends_with(": grant +info"), "{complaint}");
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_named_and_its_return_is_noticed() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let servers = [server];
    grant(&servers, &documented(DATA, "weir", "weir")).await;
    let joined = Joined::with(&login(servers[0].settings("weir", AMPLE_BUDGET))).await;
    let (store, ledger) = (&joined.store, RedisLedger::new(joined.store.clone(), true));
    let () = servers[0].ask(&["ACL", "SETUSER", "weir", "-zrangebylex"]).await;
    let said = ledger.accounts(None, 9).await.unwrap_err().to_string();
    assert!(said.contains("redis user \"weir\" lacks a right"), "{said}");
    until("it is named", async || {
        let StoreTrouble { refused, details } = store.trouble();
        refused
            && details
                .join("; ")
                .ends_with("may not run \"zrangebylex\": grant +zrangebylex")
    })
    .await;
    let () = servers[0].ask(&["ACL", "SETUSER", "weir", "+zrangebylex"]).await;
    until("it serves again", async || ledger.accounts(None, 9).await.is_ok()).await;
    assert_eq!(store.trouble(), StoreTrouble::default());
}

#[tokio::test]
async fn a_cluster_that_does_not_tell_its_map_names_every_missing_right() {
    let Some(cluster) = TestCluster::start().await else {
        return;
    };
    let all = documented(CLUSTER, "weir", "weir");
    let words: Vec<String> = all
        .into_iter()
        .filter(|word| !["+cluster|slots", "+zadd"].contains(&word.as_str()))
        .collect();
    grant(&cluster.servers, &words).await;
    let joined = Joined::begin(&login(cluster.settings("weir", AMPLE_BUDGET)));
    until("both are said", async || {
        let said = joined.store.trouble().details.join("; ");
        said.ends_with("may not run \"zadd\", \"cluster|slots\": grant +zadd +cluster|slots")
    })
    .await;
}

#[tokio::test]
async fn what_a_sentinel_denies_is_named() {
    let Some(watched) = Watched::start(0, 1).await else {
        return;
    };
    grant(&watched.servers, &documented(DATA, "weir", "weir")).await;
    let sentinel = &watched.sentinels[0];
    let words = [
        "ACL",
        "SETUSER",
        "watcher",
        "on",
        ">pw",
        "resetchannels",
        "+subscribe",
        "+sentinel|get-master-addr-by-name",
    ];
    let () = sentinel.ask(&words).await;
    let joined = Joined::with(&sentinel_login(&watched, "weir")).await;
    let store = &joined.store;
    until("it is said that switches are not heard of", async || {
        store
            .trouble()
            .details
            .join("; ")
            .ends_with("grant +subscribe &+switch-master")
    })
    .await;
    assert!(!store.trouble().refused && store.warnings().contains(&StoreWarning::MissingRights));
    drop(joined);
    let () = sentinel.ask(&["ACL", "SETUSER", "watcher", "-@all"]).await;
    let joined = Joined::begin(&sentinel_login(&watched, "weir"));
    until("it is said that the master is not told", async || {
        let said = joined.store.trouble().details.join("; ");
        said.contains("grant +sentinel|get-master-addr-by-name")
    })
    .await;
}
