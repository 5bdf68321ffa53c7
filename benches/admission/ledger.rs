//! `LedgerStore::admit` by itself: one script on a Redis of this machine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::sync::watch;
use weir::parts::{
    AccountChange, AdmitCall, AdmitReply, AdoptPolicy, KeyId, KeyRecord, KeyState, KeyStore, KeyTerms, LedgerStore,
    NanoUsd, NodeId, RedisLedger, RedisMode, RedisSettings, RedisStore, Step,
};

use crate::{AT_ONCE, Scale, cells, fleet};

const ACCOUNT: &str = "bench";
/// A store that is not connected after so many tries, 10 ms apart, never will be.
const CONNECT_TRIES: usize = 500;
const BUDGET: Duration = Duration::from_secs(5);
/// Holds that are left before all are ended, which is not measured: as many as a busy account has.
const HOLDS_MAX: usize = 256;

/// Prints a table.
pub(crate) async fn measure(scale: Scale) -> Result<(), String> {
    let folder = TempDir::with_prefix("weir-admission-").expect("a temporary folder");
    let (_server, address) = fleet::redis_server(folder.path());
    let store = Arc::new(
        RedisStore::open(&RedisSettings {
            mode: RedisMode::Standalone,
            nodes: vec![address.to_string()],
            username: None,
            password: None,
            database: 0,
            tls: false,
            ca_file: None,
            namespace: "bench".to_owned(),
            budget: BUDGET,
            queue: Duration::from_secs(5),
        })
        .map_err(|error| error.to_string())?,
    );
    let (stop, stopped) = watch::channel(false);
    let running = Arc::clone(&store);
    let task = tokio::spawn(async move { running.run(stopped).await });
    let mut tries = 0;
    while store.init(AdoptPolicy::Refuse).await.is_err() {
        tries += 1;
        if tries > CONNECT_TRIES {
            return Err("the store did not connect to redis-server".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let bench = Bench::new(RedisLedger::new(store, true)).await?;
    println!("| Redis ledger, one call | p50 (us) | p99 (us) | calls per second |\n|---|---:|---:|---:|");
    bench.reads(scale).await?;
    bench.admissions("admission", 1, scale.single * scale.rounds).await?;
    let many = scale.many * AT_ONCE * scale.rounds;
    bench
        .admissions(&format!("admission, {AT_ONCE} at a time"), AT_ONCE, many)
        .await?;
    println!();
    let _ = stop.send(true);
    let _ = task.await;
    Ok(())
}

struct Bench {
    ledger: RedisLedger,
    ask: AdmitCall,
}

impl Bench {
    async fn new(ledger: RedisLedger) -> Result<Self, String> {
        let node = NodeId::generate(&mut rand::rng());
        let open = Step {
            seq: 1,
            change: AccountChange::Open {
                balance: NanoUsd::from_nanos(1_000_000_000_000_000),
                at: 1_800_000_000,
                operation: None,
            },
        };
        ledger
            .apply(&node, ACCOUNT, &[open], 0)
            .await
            .map_err(|error| error.to_string())?;
        let key = KeyRecord {
            id: KeyId::generate(&mut rand::rng()),
            name: "bench".to_owned(),
            account: ACCOUNT.into(),
            created_at: 1_800_000_000,
            expires_at: None,
            models: None,
            state: KeyState::Active,
            hint: "abcd".to_owned(),
            revision: 1,
            terms: KeyTerms {
                quota: Some(NanoUsd::from_nanos(1_000_000_000_000_000)),
                ..KeyTerms::default()
            },
            former: None,
            text_since: None,
        };
        let ask = AdmitCall {
            node,
            request: String::new().into(),
            key: Arc::new(key),
            estimate: NanoUsd::from_nanos(2_000_000),
            tokens: 500,
            ended_key: 0,
            ended_account: 0,
        };
        Ok(Self { ledger, ask })
    }

    /// The least that a script can do, for comparison: it reads one field.
    async fn reads(&self, scale: Scale) -> Result<(), String> {
        let mut micros = Vec::new();
        let started = Instant::now();
        for _ in 0..scale.single {
            let asked = Instant::now();
            let answer = self.ledger.watermark(&self.ask.node, ACCOUNT).await;
            answer.map_err(|error| error.to_string())?;
            micros.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        let rate = micros.len() as f64 / started.elapsed().as_secs_f64();
        println!("| a script that reads one field | {} | {rate:.0} |", cells(&micros));
        Ok(())
    }

    async fn admissions(&self, name: &str, at_once: usize, count: usize) -> Result<(), String> {
        let mut micros = Vec::new();
        let mut spent = Duration::ZERO;
        while micros.len() < count {
            let started = Instant::now();
            for _ in 0..HOLDS_MAX / at_once {
                let from = micros.len();
                let asked = join_all((0..at_once).map(|place| self.admit(from + place)));
                for took in asked.await {
                    micros.push(took?);
                }
            }
            spent += started.elapsed();
            let ended = self.ledger.release(&self.ask.node, ACCOUNT).await;
            ended.map_err(|error| error.to_string())?;
        }
        let rate = micros.len() as f64 / spent.as_secs_f64();
        println!("| {name} | {} | {rate:.0} |", cells(&micros));
        Ok(())
    }

    async fn admit(&self, number: usize) -> Result<f64, String> {
        let ask = AdmitCall {
            request: format!("req_{number:020}").into(),
            ..self.ask.clone()
        };
        let asked = Instant::now();
        match self.ledger.admit(&ask).await {
            Ok(AdmitReply::Granted(_)) => Ok(asked.elapsed().as_secs_f64() * 1e6),
            Ok(other) => Err(format!("not admitted: {other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}
