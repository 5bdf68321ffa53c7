//! Rounds of kills under traffic: clients ask without pause while gateways, Postgres and Redis are killed at random moments, or a
//! bucket stands still, and after each round the log is held against the ledger and against what the provider has billed.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value as Json;

use super::books::Books;
use super::bucket::BucketServer;
use super::client::Client;
use super::faulty_way::{Fault, FaultyWay};
use super::postgres::PostgresServer;
use super::redis::RedisServer;
use super::request::{ALL_WIRES, Upload};
use super::sample::SampleProvider;
use super::tools::note;
use super::wait::{wait_until, wait_within};
use super::weir::Weir;

/// Says which moments are chosen; drawn anew where it is not set.
const SEED: &str = "WEIR_TEST_SEED";
const CLIENTS: usize = 6;
/// How long a client waits that was refused, or whose gateway is not there.
const PAUSE: Duration = Duration::from_millis(20);

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Node(usize),
    Postgres,
    Redis,
    /// It stands still instead: what is on its way to it arrives later.
    Bucket,
    /// What happens on the way to the bucket.
    Way(Fault),
}

/// Gateways with one account, what they stand on, and clients that ask them.
pub(crate) struct Kills {
    pub(crate) provider: SampleProvider,
    pub(crate) nodes: Vec<Weir>,
    pub(crate) postgres: Option<PostgresServer>,
    pub(crate) redis: Option<RedisServer>,
    pub(crate) bucket: Option<BucketServer>,
    pub(crate) way: Option<FaultyWay>,
    crowd: Arc<Crowd>,
    clients: Vec<JoinHandle<()>>,
    random: SmallRng,
    rounds: usize,
}

/// What the clients share.
struct Crowd {
    asks: AtomicBool,
    over: AtomicBool,
    running: AtomicUsize,
    gateways: Mutex<Vec<SocketAddr>>,
    /// The ids of requests that were answered in full.
    served: Mutex<Vec<String>>,
}

impl Kills {
    /// Begins with these; nobody asks yet.
    pub(crate) fn new(
        provider: SampleProvider,
        nodes: Vec<Weir>,
        postgres: Option<PostgresServer>,
        redis: Option<RedisServer>,
    ) -> Kills {
        let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000_u64));
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{test}: {SEED}={seed} chooses the same moments again");
        note(&format!("{test}: {SEED}={seed}"));
        let keys = [nodes[0].key().text, nodes[0].key().text];
        let crowd = Arc::new(Crowd {
            asks: AtomicBool::new(false),
            over: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            gateways: Mutex::new(nodes.iter().map(|node| node.gateway).collect()),
            served: Mutex::default(),
        });
        let clients = (0..CLIENTS).map(|number| {
            let (crowd, key) = (Arc::clone(&crowd), keys[number / 3 % keys.len()].clone());
            let random = SmallRng::seed_from_u64(seed.wrapping_add(1 + number as u64));
            std::thread::spawn(move || crowd.visit(number, &key, random))
        });
        Kills {
            clients: clients.collect(),
            provider,
            nodes,
            postgres,
            redis,
            bucket: None,
            way: None,
            crowd,
            random: SmallRng::seed_from_u64(seed),
            rounds: 0,
        }
    }

    /// One of these, at random.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.random_range(0..choices.len())]
    }

    /// Kills these while clients ask, brings them back, and holds the books against each other.
    #[track_caller]
    pub(crate) fn round(&mut self, victims: &[Victim]) -> Books {
        self.begin();
        victims.iter().for_each(|victim| self.kill(*victim));
        self.pass(0..500);
        self.bring_back(victims);
        self.pass(0..300);
        self.rest();
        self.compare(victims)
    }

    /// Has the clients ask, for a while.
    #[track_caller]
    pub(crate) fn begin(&mut self) {
        self.rounds += 1;
        let served = self.crowd.served();
        self.crowd.asks.store(true, Ordering::SeqCst);
        wait_until("somebody to be served", || self.crowd.served() > served);
        self.pass(0..800);
    }

    /// Some milliseconds pass.
    pub(crate) fn pass(&mut self, range: std::ops::Range<u64>) {
        let until = Instant::now() + Duration::from_millis(self.random.random_range(range));
        wait_until("the moment to come", || Instant::now() > until);
    }

    pub(crate) fn kill(&mut self, victim: Victim) {
        match victim {
            Victim::Node(number) => self.nodes[number].process().kill(),
            Victim::Postgres => self.postgres.as_mut().unwrap().down(),
            Victim::Redis => self.redis.as_mut().unwrap().down(),
            Victim::Bucket => self.bucket.as_ref().unwrap().process.signal("STOP"),
            Victim::Way(fault) => self.way.as_ref().unwrap().set(fault),
        }
    }

    /// Starts again what was killed: a gateway last, for it does not start without its store.
    #[track_caller]
    pub(crate) fn bring_back(&mut self, victims: &[Victim]) {
        if victims.contains(&Victim::Redis) {
            assert!(self.redis.as_mut().unwrap().up());
        }
        let postgres_first = self.one_of(&[true, false]);
        let postgres = victims.contains(&Victim::Postgres);
        if postgres && postgres_first {
            self.postgres.as_mut().unwrap().up();
        }
        for victim in victims {
            if let Victim::Node(number) = *victim {
                self.nodes[number].kill_and_restart();
                self.crowd.gateways.lock().unwrap()[number] = self.nodes[number].gateway;
            }
        }
        if postgres && !postgres_first {
            self.postgres.as_mut().unwrap().up();
        }
        if victims.contains(&Victim::Bucket) {
            self.bucket.as_ref().unwrap().process.signal("CONT");
        }
        if let Some(way) = &self.way {
            way.set(Fault::None);
        }
    }

    /// Has the clients rest, when each has its answer.
    #[track_caller]
    pub(crate) fn rest(&self) {
        self.crowd.asks.store(false, Ordering::SeqCst);
        wait_until("the clients to have their answers", || {
            self.crowd.running.load(Ordering::SeqCst) == 0
        });
        let dead = self.clients.iter().any(JoinHandle::is_finished);
        assert!(!dead, "a client has panicked");
    }

    /// The books of all gateways, which all run: each request that was answered has one row, and each that the provider has
    /// billed; what the rows say that were not cut is what it billed.
    #[track_caller]
    pub(crate) fn compare(&self, victims: &[Victim]) -> Books {
        let what = format!("round {}, {victims:?} killed", self.rounds);
        for node in &self.nodes {
            node.wait_for_store(true);
            wait_until("what is owed to be settled", || {
                node.figure("weir_settlements_unacknowledged") == 0
            });
        }
        let bills = self.provider.bills();
        let served = self.crowd.served.lock().unwrap();
        // No request has two rows, of which the books make sure.
        let books = self.nodes[0].books_at_rest(|rows| {
            let ids: HashSet<&str> = rows.iter().filter_map(|row| row["request_id"].as_str()).collect();
            rows.len() >= bills.len() && served.iter().all(|id| ids.contains(id.as_str()))
        });
        let whole = books.rows.iter().filter(|row| row["outcome"] != "crash").count();
        let billed = bills.len();
        assert!(
            (whole..=books.rows.len()).contains(&billed),
            "{what}: {billed} answers were billed, {whole} rows were not cut, there are {}",
            books.rows.len()
        );
        assert_reported(&books.rows, &bills, &what);
        note(&format!(
            "{what}: {} rows, {} of them cut, {billed} bills",
            books.rows.len(),
            books.rows.len() - whole
        ));
        books
    }
}

impl Kills {
    /// What these rows report, wherever they were read, is what the provider has billed.
    #[track_caller]
    pub(crate) fn assert_billed(&self, rows: &[Json]) {
        assert_reported(rows, &self.provider.bills(), "as they were read");
    }
}

/// What rows report was billed so, each once.
#[track_caller]
fn assert_reported(rows: &[Json], bills: &[Json], what: &str) {
    let mut left: HashMap<(u64, u64), usize> = HashMap::new();
    for bill in bills {
        *left.entry(super::books::billed(bill)).or_default() += 1;
    }
    for row in rows.iter().filter(|row| row["usage_source"] == "reported") {
        let used = super::books::used(row);
        let left = left.get_mut(&used).filter(|left| **left > 0);
        *left.unwrap_or_else(|| panic!("{what}: nobody has billed {used:?}: {row}")) -= 1;
    }
}

impl Drop for Kills {
    fn drop(&mut self) {
        self.crowd.over.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Crowd {
    fn served(&self) -> usize {
        self.served.lock().unwrap().len()
    }

    /// Asks its gateway again and again.
    fn visit(&self, number: usize, key: &str, mut random: SmallRng) {
        let is_over = || self.over.load(Ordering::SeqCst);
        while !is_over() {
            // Counted before it looks, so that whoever has it rest sees it.
            self.running.fetch_add(1, Ordering::SeqCst);
            let asks = self.asks.load(Ordering::SeqCst);
            let served = asks.then(|| self.ask(number, key, &mut random)).flatten();
            self.running.fetch_sub(1, Ordering::SeqCst);
            match served {
                Some(id) => self.served.lock().unwrap().push(id),
                None => {
                    wait_within(PAUSE, || is_over().then_some(()));
                }
            }
        }
    }

    /// The id of a request that was answered in full.
    fn ask(&self, number: usize, key: &str, random: &mut SmallRng) -> Option<String> {
        let gateway = {
            let gateways = self.gateways.lock().unwrap();
            gateways[number % gateways.len()]
        };
        let (deltas, bytes) = (random.random_range(1..40), random.random_range(10..60));
        let prompt = format!("Tell me of weirs. [[sample: deltas={deltas} delta_bytes={bytes} gap_ms=4]]");
        let wire = ALL_WIRES[number % 3];
        let request = if random.random() {
            wire.streaming(key, &prompt)
        } else {
            wire.request(key, &prompt)
        };
        let mut client = Client::over(TcpStream::connect(gateway).ok()?);
        client.write(&request.bytes(Upload::Length));
        let head = client.try_head_to("POST")?;
        let id = head.header("x-weir-request-id")?.to_owned();
        let answer = client.rest(head);
        let is_whole = answer.status == 200 && answer.complete;
        (is_whole && super::shapes::in_band_error(wire, &answer.text()).is_none()).then_some(id)
    }
}
