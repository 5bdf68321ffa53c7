//! Keys: what a small request costs when it is of any of so many.

use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    task::JoinSet,
};

use crate::{
    Scale,
    driver::Connection,
    fleet::{self, Proxy, Script, redis_server, sample_provider},
    node::Weir,
    process::Process,
    reference::Reference,
    request::Form,
    row::Subject,
    timed::{self, Asker},
};

/// Connections that ask.
const AT_ONCE: usize = 32;
/// Requests at the admin socket at one time, to make keys.
const MAKING: usize = 16;
/// Keys made over one connection: the socket ends those that take long.
const OVER_ONE_MAX: usize = 200;
const EMBEDDED: &str = "engine = \"embedded\"\n[store.embedded]\npath = \"store\"";

/// Prints a table.
pub(crate) async fn measure(scale: &Scale) -> Result<(), String> {
    println!("| keys | | requests a second | CPU per request (us) | memory (MiB) | keys made a second |");
    println!("|---:|---|---:|---:|---:|---:|");
    for keys in &scale.keys {
        of(scale, *keys, Subject::Embedded).await?;
    }
    if fleet::has_redis_server() {
        for keys in &scale.keys {
            of(scale, *keys, Subject::Redis).await?;
        }
    }
    println!();
    Ok(())
}

async fn of(scale: &Scale, count: usize, subject: Subject) -> Result<(), String> {
    let folder = TempDir::with_prefix("weir-growth-").expect("a temporary folder");
    let folder = folder.path();
    let script = Script {
        deltas: 8,
        delta_bytes: 12,
        gap: Duration::ZERO,
    };
    let mut provider = Process::start("sample-provider", &mut sample_provider(script), folder);
    let address = provider.announced_address();
    let (store, _redis) = match subject {
        Subject::Redis => {
            let (redis, redis_address) = redis_server(folder);
            let store = format!("engine = \"redis\"\n[store.redis]\nnodes = [\"{redis_address}\"]");
            (store, Some(redis))
        }
        _ => (EMBEDDED.to_owned(), None),
    };
    let mut weir = Weir::of(subject, &store).start(address, folder, |program, _| Command::new(program));
    let began = Instant::now();
    let keys = make(&weir.home.join("admin.sock"), count).await?;
    let made = count as f64 / began.elapsed().as_secs_f64();
    let mut askers = askers(&mut weir, keys);
    let reference = Arc::new(Reference::of(address, script, Form::Unary).await?);
    timed::ask(&mut askers, &reference, scale.warm, None).await?;
    let before = weir.process.cpu();
    let answers = timed::ask(&mut askers, &reference, scale.length, None).await?;
    let cpu = weir.process.cpu().since(&before).total / answers as f64;
    println!(
        "| {count} | {} | {:.0} | {cpu:.1} | {:.1} | {made:.0} |",
        subject.title(),
        answers as f64 / scale.length.as_secs_f64(),
        weir.process.memory().resident / f64::from(1 << 20)
    );
    Ok(())
}

/// Each has its part of the keys, in any order.
fn askers(weir: &mut Proxy, mut keys: Vec<String>) -> Vec<Asker> {
    keys.shuffle(&mut rand::rng());
    let mut request = |key: String| {
        weir.key = key;
        weir.request(Form::Unary)
    };
    let mut requests: Vec<Vec<Vec<u8>>> = vec![Vec::new(); AT_ONCE.min(keys.len())];
    let places = requests.len();
    for (number, key) in keys.into_iter().enumerate() {
        requests[number % places].push(request(key));
    }
    // Few keys are asked for by many connections.
    let all = (0..AT_ONCE).map(|number| Asker {
        connection: Connection::new(weir.address),
        requests: requests[number % places].clone(),
    });
    all.collect()
}

/// Makes keys at the admin socket.
async fn make(admin: &Path, count: usize) -> Result<Vec<String>, String> {
    let mut making = JoinSet::new();
    for maker in 0..MAKING {
        let (admin, numbers) = (admin.to_owned(), (maker..count).step_by(MAKING));
        let numbers: Vec<usize> = numbers.collect();
        making.spawn(async move {
            let mut keys = Vec::new();
            for some in numbers.chunks(OVER_ONE_MAX) {
                let stream = UnixStream::connect(&admin).await.map_err(|error| error.to_string())?;
                let mut stream = BufReader::new(stream);
                for number in some {
                    keys.push(make_one(&mut stream, *number).await?);
                }
            }
            Ok::<_, String>(keys)
        });
    }
    let mut keys = Vec::with_capacity(count);
    for made in making.join_all().await {
        keys.extend(made?);
    }
    Ok(keys)
}

async fn make_one(stream: &mut BufReader<UnixStream>, number: usize) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let body = json!({ "account": "bench", "name": format!("bench {number}") }).to_string();
    let request = format!(
        "POST /v1/keys HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.map_err(failed)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| format!("not a length: {line}"))?;
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.map_err(failed)?;
    let told: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
    let key = told.get("key").and_then(Value::as_str);
    key.map(str::to_owned).ok_or_else(|| format!("no key: {told}"))
}
