//! A replica takes over that lacks the master's last changes: what the journal has is told to it.

use std::time::Instant;

use crate::harness::cluster::Cluster;
use crate::harness::load::{Load, assert_served};
use crate::harness::request::ALL_WIRES;
use crate::harness::sample::SampleProvider;
use crate::harness::sentinel::Watched;
use crate::harness::tools::{note, rounds, skip};
use crate::harness::weir::Key;
use crate::harness::{Weir, WeirBuilder, wait_until};

const CLIENTS: usize = 6;
/// What each round credits: 1 USD.
const CREDIT: i64 = 1_000_000_000;

/// Servers of which one can take another's place.
struct Scene<Servers> {
    servers: Servers,
    provider: SampleProvider,
    weir: Weir,
    key: Key,
    credits: i64,
    /// Requests that were served besides those of the load.
    others: usize,
}

impl<Servers> Scene<Servers> {
    fn set(servers: Servers, with: impl FnOnce(WeirBuilder, &Servers) -> WeirBuilder) -> Scene<Servers> {
        let provider = SampleProvider::start();
        let builder = WeirBuilder::new().all_providers(&provider.base_url());
        let weir = with(builder, &servers).start();
        let key = weir.key();
        Scene {
            servers,
            provider,
            weir,
            key,
            credits: 0,
            others: 0,
        }
    }

    fn status(&self, key: &Key) -> u16 {
        self.weir.exchange(&ALL_WIRES[0].request(&key.text, "hi")).status
    }

    /// A change of the master under load: a credit, a limit and a revocation right before it hold after it.
    fn round(&mut self, change: impl FnOnce(&mut Servers)) {
        let doomed = self.weir.key();
        assert_served(
            ALL_WIRES[0],
            &self.weir.exchange(&ALL_WIRES[0].request(&doomed.text, "hi")),
        );
        self.others += 1;
        let load = Load::start(&self.weir, &[&self.key.text], CLIENTS);
        load.serve(20);
        self.weir
            .cli_json(&["account", "credit", "--id", "tests", "--usd", "1"]);
        self.credits += CREDIT;
        let low = format!("{}.00", self.credits / CREDIT);
        self.weir
            .cli_json_at_last(&["account", "update", "--id", "tests", "--low-balance-usd", &low]);
        self.weir.cli_json_at_last(&["key", "revoke", &doomed.id]);
        let began = Instant::now();
        change(&mut self.servers);
        let changed = began.elapsed();
        self.weir.wait_for_store(true);
        load.serve(20);
        note(&format!(
            "master changed within {changed:?}, served again within {:?}",
            began.elapsed()
        ));
        let before = self.others;
        wait_until("the revocation to hold", || match self.status(&doomed) {
            401 => true,
            // The new master did not know of it for a moment, or is not reached yet.
            200 => {
                self.others += 1;
                false
            }
            _ => false,
        });
        for _ in 0..20 {
            assert_eq!(self.status(&doomed), 401);
        }
        note(&format!(
            "failover: a revoked key was served {} times more",
            self.others - before
        ));
        wait_until("the limit to hold", || {
            let account = self.weir.cli_json_at_last(&["account", "show", "tests"]);
            account["low_balance_usd"] == low.as_str()
        });
        let served = load.end();
        self.others += served;
        let books = self.weir.books_as_billed(&self.provider, self.credits);
        assert_eq!(books.rows.len(), self.others);
    }
}

#[test]
fn planned_failovers_lose_no_money() {
    let Some(watched) = Watched::start(3) else {
        skip!("redis-server is not installed")
    };
    let mut scene = Scene::set(watched, WeirBuilder::sentinel);
    for round in 0..rounds(1, 20) {
        if round > 0 {
            scene.servers.wait_in_step();
        }
        scene.servers.wait_caught_up();
        scene.round(|watched| watched.fail_over());
    }
}

#[test]
fn a_killed_master_loses_no_money() {
    let Some(watched) = Watched::start(1) else {
        skip!("redis-server is not installed")
    };
    let mut scene = Scene::set(watched, WeirBuilder::sentinel);
    for _ in 0..rounds(1, 5) {
        let master = scene.servers.master();
        scene.servers.wait_caught_up();
        scene.round(|watched| {
            watched.servers[master].down();
            watched.wait_for_master(1 - master);
        });
        assert!(scene.servers.servers[master].up());
        scene.servers.wait_in_step();
    }
}

#[test]
fn a_cluster_that_loses_the_accounts_master_loses_no_money() {
    let Some(cluster) = Cluster::start() else {
        skip!("redis-server is not installed")
    };
    let mut scene = Scene::set(cluster, WeirBuilder::cluster);
    let (master, replica) = Cluster::place_of("{weir:a:tests}:state");
    // A planned change first, then the new master is killed.
    scene.round(|cluster| {
        wait_until("the replica to begin to take over", || {
            cluster.servers[replica]
                .command(&["CLUSTER", "FAILOVER"])
                .starts_with("+OK")
        });
        cluster.wait_for_master(replica);
        wait_until("the old master to be a replica", || {
            cluster.servers[master].replication().contains("role:slave")
        });
    });
    wait_until("the old master to be in step", || {
        scene.servers.servers[master]
            .replication()
            .contains("master_link_status:up")
    });
    scene.round(|cluster| {
        cluster.servers[replica].down();
        cluster.wait_for_master(master);
    });
}
