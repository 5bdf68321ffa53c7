//! A Redis cluster: three masters that share the slots, each with a replica if wanted.

use std::process::Command;

use super::port::free_port;
use super::redis::RedisServer;
use super::wait::wait_until;
use super::weir::WeirBuilder;

const MASTERS: usize = 3;
const RANGES: [(&str, &str); MASTERS] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// The first three are the masters at the start; their replicas follow in the same order.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<RedisServer>,
}

impl Cluster {
    /// Starts it, each master with a replica that soon takes its place; None when there is no redis-server on this machine.
    pub(crate) fn start() -> Option<Cluster> {
        Cluster::start_with(1, "1000")
    }

    /// Starts it without replicas, so that nothing but slots changes hands however busy the machine is.
    pub(crate) fn start_bare() -> Option<Cluster> {
        Cluster::start_with(0, "30000")
    }

    fn start_with(replicas: usize, node_timeout_ms: &str) -> Option<Cluster> {
        let count = MASTERS * (1 + replicas);
        let mut cluster = Cluster { servers: Vec::new() };
        let mut buses = Vec::new();
        for _ in 0..count {
            let bus = free_port().to_string();
            let words = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                node_timeout_ms,
                "--cluster-port",
                &bus,
            ];
            let quick = ["--repl-diskless-sync-delay", "0"];
            cluster
                .servers
                .push(RedisServer::launch(&[words.as_slice(), &quick].concat(), "")?);
            buses.push(bus);
        }
        let servers = &cluster.servers;
        for (number, server) in servers.iter().enumerate() {
            if let Some((first, last)) = RANGES.get(number) {
                server.command(&["CLUSTER", "ADDSLOTSRANGE", first, last]);
            }
            server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        let known = format!("cluster_known_nodes:{}\r\n", servers.len());
        wait_until("the nodes to know each other", || {
            let is_met = |server: &RedisServer| server.command(&["CLUSTER", "INFO"]).contains(&known);
            let all = servers.iter().all(is_met);
            if !all {
                let port = servers[0].port().to_string();
                for other in &servers[1..] {
                    if other.command(&["CLUSTER", "NODES"]).matches(" connected").count() <= 1 {
                        other.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &buses[0]]);
                    }
                }
            }
            all
        });
        for (number, replica) in servers.iter().enumerate().skip(MASTERS) {
            let master = cluster.id_of(number - MASTERS);
            wait_until("the replica to have its master", || {
                replica.command(&["CLUSTER", "REPLICATE", &master]).starts_with("+OK")
            });
            wait_until("the replica to be in step", || {
                replica.replication().contains("master_link_status:up")
            });
        }
        for server in servers {
            wait_until("the cluster to be whole", || {
                server.command(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                    && server.command(&["CLUSTER", "NODES"]).matches("slave ").count() == count - MASTERS
            });
        }
        Some(cluster)
    }

    fn id_of(&self, number: usize) -> String {
        let told = self.servers[number].command(&["CLUSTER", "MYID"]);
        told.lines().nth(1).unwrap().to_owned()
    }

    /// The slot of a key: CRC16 of what stands in its first braces, or of all of it
    /// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags>).
    pub(crate) fn slot_of(key: &str) -> u32 {
        let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
        let crc = tag.unwrap_or(key).bytes().fold(0_u32, |crc, byte| {
            (0..8).fold(crc ^ (u32::from(byte) << 8), |crc, _| {
                (crc << 1) ^ (if crc & 0x8000 == 0 { 0 } else { 0x1_1021 })
            })
        });
        crc % 16_384
    }

    /// Has `redis-cli` move a master's lowest slots to another one, key by key, and says what it said if it did not.
    pub(crate) fn reshard(&self, from: usize, to: usize, slots: usize) -> Result<(), String> {
        let node = self.servers[from].node();
        let run = |words: &[&str]| {
            let ran = Command::new("redis-cli").arg("--cluster").args(words).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
            let last = || said.lines().last().unwrap_or_default().to_owned();
            ran.status.success().then_some(()).ok_or_else(last)
        };
        // It begins with nothing while the nodes do not agree on the reshard before.
        wait_until("the nodes to agree on the slots", || run(&["check", &node]).is_ok());
        let (from, to, slots) = (self.id_of(from), self.id_of(to), slots.to_string());
        let ends = ["--cluster-from", &from, "--cluster-to", &to];
        run(&[
            ["reshard", &node].as_slice(),
            &ends,
            &["--cluster-slots", &slots, "--cluster-pipeline", "1", "--cluster-yes"],
        ]
        .concat())
    }

    /// The master that has the slot of a key, as long as none has changed, and its replica.
    pub(crate) fn place_of(key: &str) -> (usize, usize) {
        let slot = Cluster::slot_of(key);
        let is_inside = |(first, last): &(&str, &str)| (first.parse().unwrap()..=last.parse().unwrap()).contains(&slot);
        let master = RANGES.iter().position(is_inside).unwrap();
        (master, master + MASTERS)
    }

    /// Waits until this server is a master.
    pub(crate) fn wait_for_master(&self, number: usize) {
        wait_until("the replica to be a master", || {
            self.servers[number].replication().contains("role:master")
        });
    }
}

impl WeirBuilder {
    /// Keeps everything in this cluster, of which it is told one node.
    pub(crate) fn cluster(self, cluster: &Cluster) -> WeirBuilder {
        self.redis_at(vec![cluster.servers[0].node(), cluster.servers[1].node()])
            .set("store.redis.mode", "cluster")
    }
}
