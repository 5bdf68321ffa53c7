//! A Redis master, its replica and the sentinels that watch them.

use super::redis::RedisServer;
use super::wait::{wait_for, wait_until};
use super::weir::WeirBuilder;

const MASTER_NAME: &str = "main";

/// The first server is the master at the start.
pub(crate) struct Watched {
    pub(crate) servers: [RedisServer; 2],
    sentinels: Vec<RedisServer>,
}

impl Watched {
    /// Starts all of them; None when there is no redis-server on this machine.
    pub(crate) fn start(sentinels: usize) -> Option<Watched> {
        let quick = ["--repl-diskless-sync-delay", "0"];
        let master = RedisServer::launch(&quick, "")?;
        let port = master.port().to_string();
        let of_master = ["--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::launch(&[quick.as_slice(), &of_master].concat(), "")?;
        let quorum = sentinels / 2 + 1;
        let file = format!(
            "sentinel monitor {MASTER_NAME} 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds {MASTER_NAME} 500\n\
             sentinel failover-timeout {MASTER_NAME} 5000\n"
        );
        let mut watched = Watched {
            servers: [master, replica],
            sentinels: Vec::new(),
        };
        watched.wait_in_step();
        for _ in 0..sentinels {
            watched.sentinels.push(RedisServer::launch(&["--sentinel"], &file)?);
        }
        let known = format!("slaves=1,sentinels={sentinels}");
        for sentinel in &watched.sentinels {
            wait_until("the sentinel to know all", || {
                sentinel.command(&["INFO", "sentinel"]).contains(&known)
            });
        }
        Some(watched)
    }

    /// Which of the servers is the master, when there is but one.
    pub(crate) fn master(&self) -> usize {
        wait_for("a master", || {
            let is_master = |server: &RedisServer| server.replication().contains("role:master");
            let masters = [0, 1].map(|number| is_master(&self.servers[number]));
            (masters[0] != masters[1]).then_some(usize::from(masters[1]))
        })
    }

    /// Waits until the master has a replica that is in step with it.
    pub(crate) fn wait_in_step(&self) {
        wait_until("the replica to be in step", || {
            self.servers
                .iter()
                .any(|server| server.replication().contains("master_link_status:up"))
        });
    }

    /// Waits, while nothing is written, until the replica has all that the master has: also the word by which the gateway
    /// knows its Redis, without which it would rightly refuse the replica.
    pub(crate) fn wait_caught_up(&self) {
        let offset = |server: &RedisServer, name: &str| -> Option<u64> {
            let said = server.replication();
            let line = said.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        wait_until("the replica to have everything", || {
            let master = self.master();
            let written = offset(&self.servers[master], "master_repl_offset:");
            written.is_some() && written == offset(&self.servers[1 - master], "slave_repl_offset:")
        });
    }

    /// Has a sentinel change the master, and waits until it is the other one and the gateway, which must be busy, has come to
    /// it. Sentinels leave the old one a master for some ten seconds more.
    pub(crate) fn fail_over(&self) {
        let before = self.master();
        wait_until("a sentinel to begin a failover", || {
            self.sentinels[0]
                .command(&["SENTINEL", "FAILOVER", MASTER_NAME])
                .starts_with("+OK")
        });
        self.wait_for_master(1 - before);
        wait_until("the gateway to be with the new master", || {
            self.servers[1 - before]
                .command(&["CLIENT", "LIST"])
                .contains("cmd=evalsha")
        });
    }

    /// Waits until this server is the master.
    pub(crate) fn wait_for_master(&self, number: usize) {
        wait_until("the other server to be the master", || {
            self.servers[number].replication().contains("role:master")
        });
    }
}

impl WeirBuilder {
    /// Keeps everything in the Redis that these sentinels name.
    pub(crate) fn sentinel(self, watched: &Watched) -> WeirBuilder {
        let nodes: Vec<String> = watched.sentinels.iter().map(RedisServer::node).collect();
        self.redis_at(nodes)
            .set("store.redis.mode", "sentinel")
            .set("store.redis.master_name", MASTER_NAME)
    }
}
