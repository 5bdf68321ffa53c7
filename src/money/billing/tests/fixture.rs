//! A node with a real journal, a ledger that can be away, and keys; and what its requests ask for and consume.

use super::*;

/// A node with an account `acme` that has `balance`.
pub(super) struct Fixture {
    pub(super) billing: Billing,
    pub(super) ledger: Arc<Ledger>,
    /// The keys as the store has them; this node knows none of them until it has asked.
    pub(super) key_store: Arc<ModelStore>,
    pub(super) keys: Arc<KeyCache>,
    pub(super) journal: Arc<Journal>,
    pub(super) folder: TempDir,
}

pub(super) const GRACE: i64 = 2_500;
pub(super) const GRACE_ACCOUNT: i64 = 6_000;
pub(super) const SEGMENT_BYTES: u64 = 1 << 20;

pub(super) const PLENTY: RateAllowance = RateAllowance {
    per_minute: 1_000,
    burst: 1_000,
    clients_max: 10,
};
pub(super) const KEY_CACHE: KeyCacheSettings = KeyCacheSettings {
    lifetime: Duration::from_secs(3_600),
    offline_lifetime: Duration::from_secs(3_600),
    negative_lifetime: Duration::from_secs(3_600),
    entries_max: 100,
    unknown: UnknownKeySettings {
        entries_max: 100,
        per_address: PLENTY,
        in_all: PLENTY,
    },
    poll: Duration::from_secs(3_600),
    flush_used: Duration::from_secs(3_600),
};

pub(super) async fn fixture(balance: i64) -> Fixture {
    let folder = scratch();
    let settings = JournalConfig {
        path: folder.path().to_owned(),
        segment_bytes: SEGMENT_BYTES,
        keep: Duration::from_secs(60),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    };
    let journal = Journal::open(&settings).unwrap().journal;
    let ledger = Arc::new(Ledger::default());
    let limits = GraceLimits {
        key: nanos(GRACE),
        account: nanos(GRACE_ACCOUNT),
    };
    let open = Step {
        seq: 1,
        change: AccountChange::Open {
            balance: nanos(balance),
            at: 1,
            operation: None,
        },
    };
    ledger.apply(&node(9), "acme", &[open], 0).await.unwrap();
    let key_store = Arc::new(ModelStore::new());
    let keys = KeyCache::new(key_store.clone(), KEY_CACHE);
    Fixture {
        billing: Billing::new(ledger.clone(), Arc::clone(&journal), Arc::clone(&keys), limits, None),
        ledger,
        key_store,
        keys,
        journal,
        folder,
    }
}

pub(super) const fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

/// A nano-USD for each token, read or written.
pub(super) static ROUTE: LazyLock<Arc<PricedRoute>> = LazyLock::new(|| {
    let text = "version = \"v1\"\n[[price]]\nname = \"m\"\ntiers = [{ input = \"0.001\", output = \"0.001\" }]";
    let list = PriceList::read("p.toml", text).unwrap();
    Arc::new(PricedRoute {
        model: "m".into(),
        first: PricedEndpoint {
            provider: "p".into(),
            price: Arc::clone(list.find("m", "p").unwrap()),
        },
        others: Vec::new(),
    })
});

pub(super) fn tokens(input: u64, output: u64) -> Usage {
    Usage {
        input_uncached: input,
        output_text: output,
        ..Usage::default()
    }
}

/// How long, and with how many others, requests may wait.
pub(super) const MONEY: MoneyConfig = MoneyConfig {
    grace: nanos(GRACE),
    grace_account: nanos(GRACE_ACCOUNT),
    held_wait: Duration::from_secs(20),
    held_waiting_max: QueueLimits { all: 4, account: 3 },
};

/// A request of 400 input tokens whose output is estimated at 600.
pub(super) fn request<'a>(key: FoundKey<'a>, request_id: &'a SmolStr) -> AdmissionRequest<'a> {
    AdmissionRequest {
        key,
        request_id,
        operation: Operation::Messages,
        model_asked: "m",
        stream: true,
        transport: RequestTransport::Http,
        tags: &[],
        route: &ROUTE,
        estimate: Estimate {
            input: InputEstimate {
                uncached: 400,
                ..InputEstimate::default()
            },
            output: 600,
        },
        arrived: clock::instant(),
        limits: &MONEY,
    }
}

pub(super) fn consumed(usage: Usage) -> Consumption {
    Consumption {
        usage,
        source: UsageSource::Reported,
        modifiers: PriceModifiers::default(),
        runs: Vec::new(),
    }
}

pub(super) const SERVED: RequestProgress = RequestProgress {
    endpoint: 0,
    status: 200,
    latency_ms: 5,
    ttft_ms: Some(1),
    attempts: 1,
};

impl Fixture {
    /// One attempt to admit a request of this key.
    pub(super) async fn admit(&self, key: &KeyRecord, request_id: &str) -> Result<Bill, NotAdmitted> {
        let (key, request_id) = (Arc::new(key.clone()), SmolStr::from(request_id));
        let found = FoundKey {
            digest: &digest(1),
            record: &key,
        };
        self.billing.try_admit(&key, &request(found, &request_id)).await
    }

    pub(super) fn records(&self) -> Vec<Record> {
        let mut reader = self.journal.reader(Position::START);
        std::iter::from_fn(|| reader.read().unwrap().map(|(_, record)| record)).collect()
    }

    pub(super) fn settlements(&self) -> Vec<Settlement> {
        let settlement = |record| match record {
            Record::Step { step, .. } => match step.change {
                AccountChange::Settle(settlement) => Some(*settlement),
                other => panic!("{other:?}"),
            },
            _ => None,
        };
        self.records().into_iter().filter_map(settlement).collect()
    }

    /// What the settlement worker does: everything in the journal is sent.
    pub(super) async fn send(&self) {
        let steps: Vec<Step> = self
            .records()
            .into_iter()
            .filter_map(|record| match record {
                Record::Step { step, .. } => Some(step),
                _ => None,
            })
            .collect();
        let watermark = self.ledger.apply(self.journal.node(), "acme", &steps, 0).await.unwrap();
        self.journal.acknowledge("acme", watermark);
    }

    pub(super) async fn view(&self) -> AccountView {
        self.ledger.account("acme").await.unwrap().unwrap()
    }
}
