//! A replica takes over that lacks the master's last changes: what the journal has is told to it.

use crate::harness::load::{Load, assert_served};
use crate::harness::request::ALL_WIRES;
use crate::harness::sample::SampleProvider;
use crate::harness::sentinel::Watched;
use crate::harness::tools::{rounds, skip};
use crate::harness::weir::Key;
use crate::harness::{Weir, WeirBuilder, wait_until};

const CLIENTS: usize = 6;
/// What each round credits: 1 USD.
const CREDIT: i64 = 1_000_000_000;

struct Scene {
    watched: Watched,
    provider: SampleProvider,
    weir: Weir,
    key: Key,
    credits: i64,
    /// Requests that were served besides those of the load.
    others: usize,
}

impl Scene {
    fn set(sentinels: usize) -> Option<Scene> {
        let watched = Watched::start(sentinels)?;
        let provider = SampleProvider::start();
        let weir = WeirBuilder::new()
            .all_providers(&provider.base_url())
            .sentinel(&watched)
            .start();
        let key = weir.key();
        Some(Scene {
            watched,
            provider,
            weir,
            key,
            credits: 0,
            others: 0,
        })
    }

    fn status(&self, key: &Key) -> u16 {
        self.weir.exchange(&ALL_WIRES[0].request(&key.text, "hi")).status
    }

    /// A change of the master under load: a credit and a revocation right before it hold after it.
    fn round(&mut self, change: impl FnOnce(&mut Watched)) {
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
        self.weir.cli_json(&["key", "revoke", &doomed.id]);
        change(&mut self.watched);
        self.weir.wait_for_store(true);
        load.serve(20);
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
        let served = load.end();
        self.others += served;
        let books = self.weir.books_as_billed(&self.provider, self.credits);
        assert_eq!(books.rows.len(), self.others);
    }
}

#[test]
fn planned_failovers_lose_no_money() {
    let Some(mut scene) = Scene::set(3) else {
        skip!("redis-server is not installed")
    };
    for _ in 0..rounds(1, 20) {
        scene.round(|watched| watched.fail_over());
        scene.watched.wait_in_step();
    }
}

#[test]
fn a_killed_master_loses_no_money() {
    let Some(mut scene) = Scene::set(1) else {
        skip!("redis-server is not installed")
    };
    for _ in 0..rounds(1, 5) {
        let master = scene.watched.master();
        scene.round(|watched| {
            watched.servers[master].down();
            watched.wait_for_master(1 - master);
        });
        assert!(scene.watched.servers[master].up());
        scene.watched.wait_in_step();
    }
}
