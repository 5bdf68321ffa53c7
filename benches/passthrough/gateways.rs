//! LiteLLM's proxy and Portkey's gateway: installed below the target folder from their lock files, and started with one process each.
//!
//! LiteLLM gets the governance that it has without a database: keys and their budgets by its hook for keys, which its own ledger in
//! memory holds them to. Its virtual keys want Prisma's engine, which no package registry has: it is downloaded from its vendor. Portkey
//! has neither keys nor budgets without Portkey's service.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    fleet::{Fleet, Proxy, WEIR, free_address},
    node::FUNDS_USD,
    process::Process,
    request::MODEL,
    row::Subject,
};

/// The folder of the lock files.
const LOCKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/passthrough/gateways");

/// In an installation: the lock file that it was made from.
const STAMP: &str = ".made-from";

/// LiteLLM's key with all the money, and those with money for a few answers and for a few streams.
const KEY: &str = "sk-bench";
pub(crate) const FEW_KEYS: [&str; 2] = ["sk-bench-few-answers", "sk-bench-few-streams"];

/// What those few may cost, in USD.
pub(crate) const FEW_USD: &str = "0.0042";

/// Has Node listen on this machine's own address: Portkey's gateway takes a port and no address.
const LOOPBACK: &str = "const { Server } = require('net');\nconst { listen } = Server.prototype;\n\
    Server.prototype.listen = function (port, host, ...more) {\n    return listen.call(this, port, host ?? '127.0.0.1', ...more);\n};\n";

/// Where they are.
pub(crate) struct Installed {
    litellm: PathBuf,
    portkey: PathBuf,
}

/// Installs them where they are missing or made from other lock files.
pub(crate) fn install() -> Result<Installed, String> {
    let target = Path::new(WEIR).parent().and_then(Path::parent);
    let folder = target.expect("the program is in the target folder").join("gateways");
    let (litellm, portkey) = (folder.join("litellm"), folder.join("portkey"));
    made(&litellm, "litellm.lock", |lock| {
        run(Command::new("python3").args(["-m", "venv"]).arg(&litellm))?;
        let mut pip = Command::new(litellm.join("bin/python"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
        ]);
        run(pip.args(["--no-deps", "--require-hashes", "-r"]).arg(lock))
    })?;
    made(&portkey, "package-lock.json", |lock| {
        for file in [lock, &lock.with_file_name("package.json")] {
            let name = file.file_name().expect("a file's name");
            fs::copy(file, portkey.join(name)).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(&portkey);
        run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]))
    })?;
    Ok(Installed { litellm, portkey })
}

/// Has a folder made, unless it is what its lock file says.
fn made(folder: &Path, lock: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let lock = Path::new(LOCKS).join(lock);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let wanted = fs::read(&lock).map_err(failed)?;
    if fs::read(folder.join(STAMP)).is_ok_and(|made_from| made_from == wanted) {
        return Ok(());
    }
    eprintln!("passthrough: installing {} from {}", folder.display(), lock.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    make(&lock)?;
    fs::write(folder.join(STAMP), wanted).map_err(failed)
}

fn run(command: &mut Command) -> Result<(), String> {
    let why = match command.output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("{}: {why}", command.get_program().display()))
}

/// Adds both to a fleet.
pub(crate) fn join(fleet: &mut Fleet, installed: &Installed) {
    let started = start(installed, fleet.provider, fleet.folder());
    fleet.proxies.extend(started);
}

/// Starts both before a provider, with their files below a folder.
pub(crate) fn start(installed: &Installed, provider: SocketAddr, folder: &Path) -> [Proxy; 2] {
    [Subject::Litellm, Subject::Portkey].map(|subject| {
        let home = folder.join(subject.name());
        fs::create_dir_all(&home).expect("a folder in the temporary folder");
        let address = free_address();
        let (mut command, key, headers) = match subject {
            Subject::Litellm => (litellm(installed, &home, address, provider), KEY, String::new()),
            _ => (portkey(installed, &home, address), "any-key", portkey_headers(provider)),
        };
        let mut process = Process::start(subject.name(), command.current_dir(&home), &home);
        process.wait_until_accepting(address);
        Proxy {
            subject,
            address,
            stability: address,
            console: address,
            process,
            home,
            key: key.to_owned(),
            model: MODEL,
            headers,
        }
    })
}

fn litellm(installed: &Installed, home: &Path, listen: SocketAddr, provider: SocketAddr) -> Command {
    // The price is that of the other proxies' models.
    let conf = format!(
        "model_list:\n  - model_name: {MODEL}\n    litellm_params:\n      model: anthropic/{MODEL}\n      api_base: http://{provider}\n\
         \x20     api_key: bench\n      input_cost_per_token: 0.000003\n      output_cost_per_token: 0.000015\n\
         litellm_settings:\n  enable_post_custom_auth_checks: true\n\
         general_settings:\n  custom_auth: keys.check\n  custom_auth_run_common_checks: true\n"
    );
    let [answers, streams] = FEW_KEYS;
    let keys = format!(
        "from litellm.proxy._types import UserAPIKeyAuth\n\n\
         BUDGETS = {{\"{KEY}\": {FUNDS_USD}, \"{answers}\": {FEW_USD}, \"{streams}\": {FEW_USD}}}\n\n\n\
         async def check(request, api_key):\n    if api_key not in BUDGETS:\n        raise Exception(\"unknown key\")\n\
         \x20   return UserAPIKeyAuth(api_key=api_key, max_budget=BUDGETS[api_key])\n"
    );
    for (file, text) in [("litellm.yaml", conf), ("keys.py", keys)] {
        fs::write(home.join(file), text).expect("a file in the temporary folder");
    }
    let mut command = Command::new(installed.litellm.join("bin/litellm"));
    command.args(["--config", "litellm.yaml", "--telemetry", "False", "--num_workers", "1"]);
    command.args(["--host", &listen.ip().to_string(), "--port", &listen.port().to_string()]);
    // It asks nobody outside for prices, and logs errors only.
    let settings = [
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ("LITELLM_MODE", "PRODUCTION"),
        ("LITELLM_LOG", "ERROR"),
    ];
    command.envs(settings).env("DISABLE_ADMIN_UI", "True");
    command.env(
        "LITELLM_MASTER_KEY",
        format!("sk-{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>()),
    );
    command
}

fn portkey(installed: &Installed, home: &Path, listen: SocketAddr) -> Command {
    let loopback = home.join("loopback.cjs");
    fs::write(&loopback, LOOPBACK).expect("a file in the temporary folder");
    let server = installed
        .portkey
        .join("node_modules/@portkey-ai/gateway/build/start-server.js");
    let mut command = Command::new("node");
    command.arg("--require").arg(loopback).arg(server);
    command.args(["--headless", &format!("--port={}", listen.port())]);
    command
        .env("NODE_ENV", "production")
        .env("TRUSTED_CUSTOM_HOSTS", "127.0.0.1");
    command
}

/// Which provider a request is for is said by the request itself.
fn portkey_headers(provider: SocketAddr) -> String {
    format!("x-portkey-provider: anthropic\r\nx-portkey-custom-host: http://{provider}/v1\r\n")
}
