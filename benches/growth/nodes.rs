//! Nodes at one Redis: what a request costs Redis, with leases and without, and with the rows of the log in Redis and elsewhere.

use std::{path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;

use crate::{
    Scale,
    chart::Panel,
    driver::Connection,
    fleet::{Proxy, Script, redis_server, sample_provider},
    node::Weir,
    process::Process,
    redis_count::{Commands, has_rows, used_memory},
    reference::Reference,
    request::Form,
    row::Subject,
    timed::{self, Asker},
};

const NODES_MAX: usize = 4;
/// Connections of each node.
const AT_ONCE: usize = 16;
/// Settlements of a load are with Redis after this time.
const SETTLED: Duration = Duration::from_secs(1);

/// Whether nodes have leases, and whether the key has limits.
#[derive(Clone, Copy)]
enum Leases {
    None,
    OfBudget,
    OfLimits,
}

impl Leases {
    /// As the drawing has it.
    fn title(self) -> &'static str {
        match self {
            Self::None => "without leases",
            Self::OfBudget => "leases",
            Self::OfLimits => "leases, of rates and slots too",
        }
    }

    /// As the tables have it.
    fn cell(self) -> &'static str {
        match self {
            Self::None => "no",
            Self::OfBudget => "yes",
            Self::OfLimits => "yes, of rates and slots too",
        }
    }
}

/// Where the log is at home.
#[derive(Clone, Copy)]
enum Home {
    Redis,
    Files,
}

impl Home {
    /// The settings of `[log]`.
    fn settings(self, folder: &Path) -> String {
        match self {
            Self::Redis => "home = \"store\"".to_owned(),
            Self::Files => {
                let path = folder.join("log");
                format!("home = \"files\"\n[log.files]\npath = \"{}\"", path.display())
            }
        }
    }
}

/// What a request costs Redis.
struct Costs {
    /// Commands that nodes send, and that their scripts run, per 1,000 requests.
    sent: f64,
    of_scripts: f64,
    /// In microseconds.
    cpu: f64,
    /// In bytes.
    memory: f64,
}

/// Far from what is asked for.
const LIMITS: [&str; 6] = ["--rpm", "60000000", "--tpm", "1000000000", "--concurrency", "4000"];

/// Nodes at one Redis, with one key of one account.
struct Cluster {
    nodes: Vec<Proxy>,
    redis: Process,
    address: std::net::SocketAddr,
    reference: Arc<Reference>,
    _provider: Process,
    _folder: TempDir,
}

impl Cluster {
    async fn start(nodes: usize, leases: Leases, home: Home) -> Result<Self, String> {
        let folder = TempDir::with_prefix("weir-growth-").expect("a temporary folder");
        let script = Script {
            deltas: 8,
            delta_bytes: 12,
            gap: Duration::ZERO,
        };
        let mut provider = Process::start("sample-provider", &mut sample_provider(script), folder.path());
        let provider_address = provider.announced_address();
        let (redis, address) = redis_server(folder.path());
        let store = format!("engine = \"redis\"\n[store.redis]\nnodes = [\"{address}\"]");
        let log = home.settings(folder.path());
        let more = format!("{log}\n[leases]\nenabled = {}", !matches!(leases, Leases::None));
        let mut started: Vec<Proxy> = Vec::new();
        for number in 0..nodes {
            let name = format!("weir-{number}");
            let weir = Weir {
                name: &name,
                more: &more,
                limits: if matches!(leases, Leases::OfLimits) {
                    &LIMITS
                } else {
                    &[]
                },
                key: started.first().map(|first| first.key.as_str()),
                ..Weir::of(Subject::Redis, &store)
            };
            let node = weir.start(provider_address, folder.path(), |program, _| {
                std::process::Command::new(program)
            });
            started.push(node);
        }
        Ok(Self {
            reference: Arc::new(Reference::of(provider_address, script, Form::Unary).await?),
            nodes: started,
            redis,
            address,
            _provider: provider,
            _folder: folder,
        })
    }

    fn askers(&self, of_each: usize) -> Vec<Asker> {
        let connections = (0..of_each).flat_map(|_| &self.nodes);
        let askers = connections.map(|node| Asker {
            connection: Connection::new(node.address),
            requests: vec![node.request(Form::Unary)],
        });
        askers.collect()
    }
}

/// Prints the tables; answers with the drawing of the second.
pub(crate) async fn measure(scale: &Scale) -> Result<Vec<Panel>, String> {
    println!(
        "| requests a second of one key, one node, leases | sent to Redis per 1,000 requests | run in its scripts per 1,000 |"
    );
    println!("|---|---:|---:|");
    for per_second in [20, 200, 1_000] {
        paced(scale, per_second).await?;
    }
    println!(
        "\n| nodes | leases | the log's home | requests a second | sent to Redis per 1,000 requests | run in its scripts per 1,000 | \
         Redis' CPU per request (us) | requests a second that keep one core of Redis busy | Redis' memory per request (bytes) |"
    );
    println!("|---:|---|---|---:|---:|---:|---:|---:|---:|");
    let mut panels = [
        Panel::new("Redis commands per 1,000 requests", "nodes"),
        Panel::new("requests a second of one Redis core", "nodes"),
        Panel::new("Redis' CPU per request (us)", "nodes"),
    ];
    let mut ratios = Vec::new();
    for leases in [Leases::None, Leases::OfBudget, Leases::OfLimits] {
        for nodes in 1..=NODES_MAX {
            let in_redis = saturated(scale, nodes, leases, Home::Redis).await?;
            let elsewhere = saturated(scale, nodes, leases, Home::Files).await?;
            let mut lines = vec![(leases.title(), &in_redis)];
            if matches!(leases, Leases::OfBudget) {
                lines.push(("leases, the log elsewhere", &elsewhere));
            }
            for (title, costs) in lines {
                let values = [costs.sent, 1e6 / costs.cpu, costs.cpu];
                for (panel, value) in panels.iter_mut().zip(values) {
                    panel.add(title, nodes as f64, value);
                }
            }
            ratios.push((nodes, leases, in_redis, elsewhere));
        }
    }
    println!("\n| elsewhere to in Redis: nodes | leases | sent | run in scripts | Redis' CPU | Redis' memory |");
    println!("|---:|---|---:|---:|---:|---:|");
    for (nodes, leases, in_redis, elsewhere) in ratios {
        println!(
            "| {nodes} | {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            leases.cell(),
            elsewhere.sent / in_redis.sent,
            elsewhere.of_scripts / in_redis.of_scripts,
            elsewhere.cpu / in_redis.cpu,
            elsewhere.memory / in_redis.memory
        );
    }
    println!();
    Ok(panels.into())
}

async fn paced(scale: &Scale, per_second: u32) -> Result<(), String> {
    let cluster = Cluster::start(1, Leases::OfBudget, Home::Redis).await?;
    let mut askers = cluster.askers(AT_ONCE);
    let every = Some(Duration::from_secs(AT_ONCE as u64) / per_second);
    timed::ask(&mut askers, &cluster.reference, scale.warm, every).await?;
    let commands = Commands::count(cluster.address).await?;
    let answers = timed::ask(&mut askers, &cluster.reference, scale.length, every).await?;
    let (sent, of_scripts) = commands.so_far();
    let per_thousand = |count: u64| count as f64 * 1_000.0 / answers as f64;
    println!(
        "| {per_second} | {:.1} | {:.0} |",
        per_thousand(sent),
        per_thousand(of_scripts)
    );
    Ok(())
}

/// Asks as fast as it goes, and prints a line.
async fn saturated(scale: &Scale, nodes: usize, leases: Leases, home: Home) -> Result<Costs, String> {
    let cluster = Cluster::start(nodes, leases, home).await?;
    let mut askers = cluster.askers(AT_ONCE);
    timed::ask(&mut askers, &cluster.reference, scale.warm, None).await?;
    tokio::time::sleep(SETTLED).await;
    let (cpu, memory) = (cluster.redis.cpu(), used_memory(cluster.address).await?);
    let answers = timed::ask(&mut askers, &cluster.reference, scale.length, None).await?;
    tokio::time::sleep(SETTLED).await;
    let cpu = cluster.redis.cpu().since(&cpu).total;
    let memory = used_memory(cluster.address).await? - memory;
    match (home, has_rows(cluster.address).await?) {
        (Home::Redis, true) | (Home::Files, false) => {}
        (Home::Redis, false) => return Err("redis has no row of the log, which is at home there".to_owned()),
        (Home::Files, true) => return Err("redis has rows of the log, which is at home elsewhere".to_owned()),
    }
    // MONITOR costs Redis time, so commands are counted apart from that.
    let commands = Commands::count(cluster.address).await?;
    let counted = timed::ask(&mut askers, &cluster.reference, scale.length / 5, None).await?;
    let (sent, of_scripts) = commands.so_far();
    let per_thousand = |count: u64| count as f64 * 1_000.0 / counted as f64;
    let costs = Costs {
        sent: per_thousand(sent),
        of_scripts: per_thousand(of_scripts),
        cpu: cpu / answers as f64,
        memory: memory / answers as f64,
    };
    println!(
        "| {nodes} | {} | {} | {:.0} | {:.1} | {:.0} | {:.1} | {:.0} | {:.0} |",
        leases.cell(),
        match home {
            Home::Redis => "Redis",
            Home::Files => "files",
        },
        answers as f64 / scale.length.as_secs_f64(),
        costs.sent,
        costs.of_scripts,
        costs.cpu,
        1e6 / costs.cpu,
        costs.memory
    );
    Ok(costs)
}
