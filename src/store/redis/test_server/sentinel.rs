//! A master, its replicas, and the sentinels that watch them, for tests.

use std::time::Duration;

use super::{Joined, TestServer, settings};
use crate::store::contract::until;
use crate::store::redis::{RedisMode, RedisSettings};

const MASTER_NAME: &str = "main";

/// The servers of a test with sentinels. The first server is the master at the start.
pub(crate) struct Watched {
    pub(crate) servers: Vec<TestServer>,
    pub(crate) sentinels: Vec<TestServer>,
}

impl Watched {
    /// Starts a master, a number of replicas, and sentinels that know all of them and each other.
    pub(crate) async fn start(replicas: usize, sentinels: usize) -> Option<Self> {
        let master = TestServer::start().await?;
        let port = master.port().to_string();
        let mut servers = vec![master];
        for _ in 0..replicas {
            servers.push(TestServer::start_with(&["--replicaof", "127.0.0.1", &port]).await?);
        }
        for replica in servers.iter().skip(1) {
            until("the replica is in step", async || {
                replica.info_has("replication", "master_link_status:up").await
            })
            .await;
        }
        let quorum = sentinels / 2 + 1;
        let file = format!(
            "sentinel monitor {MASTER_NAME} 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds {MASTER_NAME} 500\n\
             sentinel failover-timeout {MASTER_NAME} 5000\n"
        );
        let mut watched = Self {
            servers,
            sentinels: Vec::new(),
        };
        for _ in 0..sentinels {
            let sentinel = TestServer::launch(vec!["--sentinel".to_owned()], &file).await?;
            watched.sentinels.push(sentinel);
        }
        for sentinel in &watched.sentinels {
            until("the sentinel knows all", async || {
                let info: String = sentinel.ask(&["INFO", "sentinel"]).await;
                info.contains(&format!("slaves={replicas},sentinels={sentinels}"))
            })
            .await;
        }
        Some(watched)
    }

    pub(crate) fn settings(&self, namespace: &str, budget: Duration) -> RedisSettings {
        let mode = RedisMode::Sentinel {
            master_name: MASTER_NAME.to_owned(),
            username: None,
            password: None,
        };
        let nodes = self.sentinels.iter().map(TestServer::node).collect();
        settings(mode, nodes, namespace, budget)
    }

    pub(crate) async fn join(&self, namespace: &str, budget: Duration) -> Joined {
        Joined::with(&self.settings(namespace, budget)).await
    }

    /// Makes a sentinel change the master. The sentinel refuses until it has seen that the replica is in a good state.
    pub(crate) async fn fail_over(&self) {
        until("the sentinel begins a failover", async || {
            let begun = self.sentinels[0].try_ask::<String>(&["SENTINEL", "FAILOVER", MASTER_NAME]);
            begun.await.is_ok()
        })
        .await;
    }
}
