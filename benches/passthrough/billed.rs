//! A fleet whose provider writes down what it bills. When a phase is over, the rows of each weir's log are compared with it: as
//! many, with the same tokens, and with all that the account has spent.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::{
    fleet::{Fleet, Proxy, RedisRow, Script, WEIR},
    gateways::{self, Installed},
    node::{ACCOUNT, FUNDS_USD, NANO_USD_PER_TOKEN},
    reference::Reference,
    request::Form,
    row::Subject,
    servers,
};

/// How long a weir has to charge everything after the last answer.
const CLOSING_MAX: Duration = Duration::from_secs(60);

const CLOSING_POLL: Duration = Duration::from_millis(200);

const NANO_USD: u64 = 1_000_000_000;

/// The fleet, with other gateways, or else with nginx and HAProxy where they are installed.
pub(crate) struct Billed {
    pub(crate) fleet: Fleet,
    /// How the provider called what the bench has asked it without a proxy.
    own: Mutex<HashSet<String>>,
}

/// What the provider answers, by the model that is asked for.
pub(crate) struct References(BTreeMap<&'static str, Arc<Reference>>);

impl References {
    /// Of what somebody is asked.
    pub(crate) fn of(&self, subject: Subject) -> Arc<Reference> {
        Arc::clone(&self.0[subject.model()])
    }
}

/// What a weir has charged in a phase, and its provider billed.
pub(crate) struct Sums {
    pub(crate) phase: &'static str,
    pub(crate) subject: Subject,
    /// Answers that were billed.
    pub(crate) rows: u64,
    /// Read and written.
    pub(crate) tokens: (u64, u64),
    pub(crate) cost_nano_usd: u64,
}

/// How many, and their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    answers: u64,
    input: u64,
    output: u64,
}

/// A line of the provider's ledger.
#[derive(Deserialize)]
struct Bill {
    event: String,
    request_id: String,
    model: String,
    status: u16,
    input_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    output_tokens: u64,
}

/// A row of the log.
#[derive(Deserialize)]
struct Row {
    status: u16,
    #[serde(default)]
    input_uncached: u64,
    #[serde(default)]
    output_text: u64,
    cost_nano_usd: u64,
}

#[derive(Deserialize)]
struct Account {
    running: u64,
    held_nano_usd: u64,
    spent_nano_usd: u64,
    balance_nano_usd: u64,
}

impl Billed {
    /// Starts everything.
    pub(crate) fn start(script: Script, redis: RedisRow, others: Option<&Installed>) -> Self {
        let mut fleet = Fleet::billed(script, redis);
        match others {
            Some(installed) => gateways::join(&mut fleet, installed),
            None => servers::join(&mut fleet),
        }
        Self {
            fleet,
            own: Mutex::default(),
        }
    }

    /// What the provider answers to what everybody is asked.
    pub(crate) async fn references(&self, form: Form) -> Result<References, String> {
        let Fleet { provider, script, .. } = self.fleet;
        let subjects = self.fleet.proxies.iter().map(|proxy| proxy.subject);
        let models: BTreeSet<&str> = subjects.chain([Subject::Direct]).map(Subject::model).collect();
        // Of a slow stream, all take as long as one.
        let read = models.into_iter().map(|model| async move {
            let reference = Reference::of_model(provider, script, form, model).await;
            reference.map(|reference| (model, Arc::new(reference)))
        });
        let read = try_join_all(read).await.map_err(|bad| format!("direct: {bad}"))?;
        let asked = read.iter().flat_map(|(_, reference)| reference.asked.iter().cloned());
        self.own.lock().extend(asked);
        Ok(References(read.into_iter().collect()))
    }

    /// Compares what each weir has charged with what was billed. The error says which differs.
    pub(crate) async fn close(self, phase: &'static str) -> Result<Vec<Sums>, String> {
        let mut all = Vec::new();
        for proxy in self.fleet.proxies.iter().filter(|proxy| proxy.subject.is_weir()) {
            let sums = self.sums(phase, proxy).await;
            all.push(sums.map_err(|bad| format!("{phase}: the books of {}: {bad}", proxy.subject.name()))?);
        }
        Ok(all)
    }

    async fn sums(&self, phase: &'static str, proxy: &Proxy) -> Result<Sums, String> {
        let billed = self.billed(proxy)?;
        let cost_nano_usd = billed.input * NANO_USD_PER_TOKEN.0 + billed.output * NANO_USD_PER_TOKEN.1;
        let began = Instant::now();
        let account = loop {
            let account: Account = account(proxy)?;
            let is_closed = account.running == 0 && account.held_nano_usd == 0;
            // What is settled last may still be missing.
            if (is_closed && account.spent_nano_usd == cost_nano_usd) || began.elapsed() > CLOSING_MAX {
                break account;
            }
            tokio::time::sleep(CLOSING_POLL).await;
        };
        let (charged, cost) = charged(proxy)?;
        let mut complaints = Vec::new();
        if charged != billed {
            complaints.push(format!("its rows say {charged:?}, the provider billed {billed:?}"));
        }
        let (spent, balance) = (account.spent_nano_usd, account.balance_nano_usd);
        for (whose, is) in [("its rows", cost), ("the account's spending", spent)] {
            if is != cost_nano_usd {
                complaints.push(format!(
                    "{is} nano-USD by {whose}, {cost_nano_usd} by what the provider billed"
                ));
            }
        }
        if spent + balance != FUNDS_USD * NANO_USD {
            complaints.push(format!(
                "spent {spent} and left {balance} nano-USD are not what the account got"
            ));
        }
        if account.running != 0 || account.held_nano_usd != 0 {
            let Account {
                running, held_nano_usd, ..
            } = account;
            complaints.push(format!("{running} still run, and {held_nano_usd} nano-USD are held"));
        }
        if !complaints.is_empty() {
            return Err(complaints.join("; "));
        }
        Ok(Sums {
            phase,
            subject: proxy.subject,
            rows: charged.answers,
            tokens: (charged.input, charged.output),
            cost_nano_usd,
        })
    }

    /// What the provider has billed for answers to a proxy.
    fn billed(&self, proxy: &Proxy) -> Result<Tally, String> {
        let own = self.own.lock();
        let mut tally = Tally::default();
        let file = File::open(self.fleet.ledger()).map_err(|error| format!("the provider's ledger: {error}"))?;
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|error| format!("the provider's ledger: {error}"))?;
            let bill: Bill = serde_json::from_str(&line).map_err(|error| format!("{error} in {line}"))?;
            let is_its = bill.event == "end" && bill.model == proxy.model && !own.contains(&bill.request_id);
            if is_its && bill.status < 400 {
                let input = bill.input_tokens + bill.cache_read_tokens + bill.cache_write_tokens;
                tally.add(input, bill.output_tokens);
            }
        }
        Ok(tally)
    }
}

impl Tally {
    fn add(&mut self, input: u64, output: u64) {
        self.answers += 1;
        self.input += input;
        self.output += output;
    }
}

fn account(proxy: &Proxy) -> Result<Account, String> {
    let mut shown = ask(proxy, &["account", "show", "--id", ACCOUNT])?;
    shown.pop().ok_or_else(|| "no account is shown".to_owned())
}

/// What the rows of the log add up to, and what they cost.
fn charged(proxy: &Proxy) -> Result<(Tally, u64), String> {
    let words = ["log", "query", "--account", ACCOUNT, "--limit", "1000000000"];
    let (mut tally, mut cost) = (Tally::default(), 0);
    for row in ask::<Row>(proxy, &words)? {
        if row.status >= 400 {
            return Err(format!("a row has the status {}", row.status));
        }
        tally.add(row.input_uncached, row.output_text);
        cost += row.cost_nano_usd;
    }
    Ok((tally, cost))
}

/// What a weir tells its operators, a line each.
fn ask<T: for<'a> Deserialize<'a>>(proxy: &Proxy, words: &[&str]) -> Result<Vec<T>, String> {
    let failed = |error: std::io::Error| format!("weir {words:?}: {error}");
    let errors = proxy.home.join("asked.err");
    let mut child = Command::new(WEIR)
        .args(words)
        .args(["--json", "--admin"])
        .arg(format!("unix:{}", Path::new(&proxy.home).join("admin.sock").display()))
        .stdout(Stdio::piped())
        .stderr(File::create(&errors).map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut told = Vec::new();
    for line in output.lines() {
        let line = line.map_err(failed)?;
        told.push(serde_json::from_str(&line).map_err(|error| format!("weir {words:?}: {error} in {line}"))?);
    }
    if child.wait().map_err(failed)?.success() {
        Ok(told)
    } else {
        Err(format!(
            "weir {words:?}: {}",
            std::fs::read_to_string(&errors).unwrap_or_default()
        ))
    }
}
