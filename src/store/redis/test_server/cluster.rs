//! A Redis cluster of three masters for tests, each with a replica if requested.

use std::time::Duration;

use super::{Joined, TestServer, settings};
use crate::store::contract::until;
use crate::store::redis::{RedisMode, RedisSettings};

const MASTERS: usize = 3;
const RANGES: [(&str, &str); MASTERS] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// The servers of a test cluster. The first three are the masters at the start; their replicas follow in the same order.
pub(crate) struct TestCluster {
    pub(crate) servers: Vec<TestServer>,
}

impl TestCluster {
    /// Starts three masters that share the hash slots.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(0).await
    }

    /// Starts three masters that share the hash slots, each with a replica.
    pub(crate) async fn start_replicated() -> Option<Self> {
        Self::start_with(1).await
    }

    async fn start_with(replicas: usize) -> Option<Self> {
        let count = MASTERS * (1 + replicas);
        let mut servers = Vec::new();
        for _ in 0..count {
            let bus = super::free_port().to_string();
            let more = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "1000",
                "--cluster-port",
                &bus,
            ];
            servers.push(TestServer::start_with(&more).await?);
        }
        let cluster = Self { servers };
        for (server, (first, last)) in cluster.servers.iter().zip(RANGES) {
            let () = server.ask(&["CLUSTER", "ADDSLOTSRANGE", first, last]).await;
        }
        for (number, server) in cluster.servers.iter().enumerate() {
            let epoch = (number + 1).to_string();
            let () = server.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
        cluster.introduce().await;
        for (number, replica) in cluster.servers.iter().enumerate().skip(MASTERS) {
            let master: String = cluster.servers[number % MASTERS].ask(&["CLUSTER", "MYID"]).await;
            until("the replica has its master", async || {
                replica.try_ask::<()>(&["CLUSTER", "REPLICATE", &master]).await.is_ok()
            })
            .await;
            until("the replica is in step", async || {
                replica.info_has("replication", "master_link_status:up").await
            })
            .await;
        }
        for server in &cluster.servers {
            until("the cluster is whole", async || {
                let info: String = server.ask(&["CLUSTER", "INFO"]).await;
                let nodes: String = server.ask(&["CLUSTER", "NODES"]).await;
                info.contains("cluster_state:ok") && nodes.matches("slave ").count() == count - MASTERS
            })
            .await;
        }
        Some(cluster)
    }

    /// Introduces every node to the first one. A handshake that times out on a busy machine is started again.
    async fn introduce(&self) {
        let [first, others @ ..] = self.servers.as_slice() else {
            return;
        };
        let first_bus = bus_port(first).await;
        let known = format!("cluster_known_nodes:{}\r\n", self.servers.len());
        until("the nodes know each other", async || {
            let mut all = true;
            for server in &self.servers {
                let info: String = server.ask(&["CLUSTER", "INFO"]).await;
                all &= info.contains(&known);
            }
            if !all {
                let port = first.port().to_string();
                for other in others {
                    let nodes: String = other.ask(&["CLUSTER", "NODES"]).await;
                    if nodes.lines().count() == 1 {
                        let () = other.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &first_bus]).await;
                    }
                }
            }
            all
        })
        .await;
    }

    pub(crate) fn settings(&self, namespace: &str, budget: Duration) -> RedisSettings {
        // Only the first node is queried: the others become known through it.
        settings(RedisMode::Cluster, vec![self.servers[0].node()], namespace, budget)
    }

    pub(crate) async fn join(&self, namespace: &str, budget: Duration) -> Joined {
        Joined::with(&self.settings(namespace, budget)).await
    }

    pub(crate) async fn slot_of(&self, key: &str) -> u16 {
        self.servers[0].ask(&["CLUSTER", "KEYSLOT", key]).await
    }

    /// Waits until scripts have been called `more` times since this function was called. Redirected calls are included.
    pub(crate) async fn until_called(&self, more: u64) {
        let before = self.calls().await;
        until("scripts are called", async || self.calls().await >= before + more).await;
    }

    async fn calls(&self) -> u64 {
        let mut sum = 0;
        for server in &self.servers {
            let stats: String = server.ask(&["INFO", "commandstats"]).await;
            let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
            let words = line.unwrap_or_default().split([':', ',']);
            let counts = words.filter_map(|word| word.strip_prefix("calls=").or(word.strip_prefix("rejected_calls=")));
            sum += counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>();
        }
        sum
    }

    /// Returns the index of the server that owned the hash slot of a key when the cluster was started.
    pub(crate) async fn place_of(&self, key: &str) -> usize {
        let slot = self.slot_of(key).await;
        let inside = |(first, last): &(&str, &str)| (first.parse().unwrap()..=last.parse().unwrap()).contains(&slot);
        RANGES.iter().position(inside).unwrap()
    }
}

/// A hash slot that is being moved from one master to another.
pub(crate) struct Move<'a> {
    from: &'a TestServer,
    to: &'a TestServer,
    to_id: String,
    slot: String,
}

impl<'a> Move<'a> {
    /// Begins the move on both servers, which are given by their indices.
    pub(crate) async fn begin(cluster: &'a TestCluster, from: usize, to: usize, slot: u16) -> Self {
        let (from, to) = (&cluster.servers[from], &cluster.servers[to]);
        let slot = slot.to_string();
        let from_id: String = from.ask(&["CLUSTER", "MYID"]).await;
        let to_id: String = to.ask(&["CLUSTER", "MYID"]).await;
        let () = to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
        let () = from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
        Self { from, to, to_id, slot }
    }

    /// Returns the keys that have not been moved, at most a hundred.
    pub(crate) async fn names(&self) -> Vec<String> {
        self.from.ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]).await
    }

    /// Moves a key to the server that gets the hash slot.
    pub(crate) async fn take(&self, name: &str) {
        migrate(self.from, self.to, name).await;
    }

    /// Ends the move. The server that has got the keys now owns the hash slot.
    pub(crate) async fn end(&self) {
        for node in [self.to, self.from] {
            let () = node.ask(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &self.to_id]).await;
        }
    }

    /// Undoes the move: the hash slot stays on its server, and the key `name`, which has been moved, returns to that server.
    pub(crate) async fn undo(&self, name: &str) {
        let () = self.from.ask(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]).await;
        migrate(self.to, self.from, name).await;
        let () = self.to.ask(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]).await;
    }
}

async fn migrate(from: &TestServer, to: &TestServer, name: &str) {
    let port = to.port().to_string();
    let moved: String = from.ask(&["MIGRATE", "127.0.0.1", &port, name, "0", "5000"]).await;
    assert_eq!(moved, "OK", "{name}");
}

async fn bus_port(server: &TestServer) -> String {
    let nodes: String = server.ask(&["CLUSTER", "NODES"]).await;
    let (_, rest) = nodes.split_once('@').unwrap();
    rest.split([' ', ',']).next().unwrap().to_owned()
}
