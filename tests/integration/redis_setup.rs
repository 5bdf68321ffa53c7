//! A Redis that is not set up as weir needs it: what is said, where, and what is served meanwhile.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::client::Client;
use crate::harness::port::free_port;
use crate::harness::process::Process;
use crate::harness::redis::RedisServer;
use crate::harness::request::Wire;
use crate::harness::tools::skip;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder, wait_until};

/// What a process ends with whose configuration is wrong.
const EX_CONFIG: i32 = 78;
const PASSWORD_VARIABLE: &str = "WEIR_TEST_REDIS_PASSWORD";

fn readiness(weir: &Weir) -> (u16, Json) {
    let answer = weir.ops_get("/readyz");
    (answer.status, answer.json())
}

fn check(conf: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["check", "--conf"]).arg(conf).args(flags);
    command.env(PASSWORD_VARIABLE, "pw").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_missing_right_is_named_by_readiness_log_metrics_and_check() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    redis.command(&[
        "ACL", "SETUSER", "weir", "on", ">pw", "~{weir:*", "+@all", "-lrange", "-rpush",
    ]);
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .set("store.redis.username", "weir")
        .set("store.redis.password", format!("env:{PASSWORD_VARIABLE}"))
        .variable(PASSWORD_VARIABLE, "pw")
        .start();
    let conf = weir.folder().join("weir.toml");
    let said = "user \"weir\" may not run \"lrange\", \"rpush\": grant +lrange +rpush";
    wait_until("the missing rights to be named", || {
        let (status, body) = readiness(&weir);
        let details = body["details"].to_string().replace('\\', "");
        status == 503 && body["reasons"].to_string().contains("store_refused") && details.contains(said)
    });
    assert!(weir.logs().replace('\\', "").contains(said), "{}", weir.logs());
    assert!(weir.metrics().contains("weir_store_warning{kind=\"missing_rights\"} 1"));
    let checked = check(&conf, &["--store"]);
    assert!(
        !checked.status.success() && text(&checked.stderr).contains(said),
        "{checked:?}"
    );
    assert!(check(&conf, &[]).status.success(), "the store is only asked on request");

    redis.command(&["ACL", "SETUSER", "weir", "+lrange", "+rpush"]);
    wait_until("the store to be set up", || {
        weir.set_up_store();
        readiness(&weir).0 == 200
    });
    let key = weir.key().text;
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    redis.command(&["ACL", "SETUSER", "weir", "-info"]);
    wait_until("the loss of a lesser right to be told", || {
        let (status, body) = readiness(&weir);
        status == 200
            && body["warnings"].to_string().contains("store_rights_missing")
            && body["details"].to_string().contains("grant +info")
    });
    let checked = check(&conf, &["--store", "--json"]);
    assert!(
        checked.status.success() && text(&checked.stdout).contains("grant +info"),
        "{checked:?}"
    );
    redis.command(&["ACL", "SETUSER", "weir", "+info"]);
    let checked = check(&conf, &["--store"]);
    let told = text(&checked.stdout);
    assert!(checked.status.success() && !told.contains("grant"), "{checked:?}");
    assert!(told.contains("set list-compress-depth to 1"), "{told}");
}

#[test]
fn a_redis_that_may_evict_counts_as_away_and_keys_in_use_go_on_within_their_grace() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .start();
    let (key, unseen) = (weir.key().text, weir.key().text);
    // Nothing is kept before the node follows the changes of keys, which it may do a moment after its start.
    let mut served = 0;
    wait_until("the key to be at hand", || {
        assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
        served += 1;
        let metrics = weir.ops_get("/metrics").text();
        let hits = metrics
            .lines()
            .find_map(|line| line.strip_prefix("weir_key_cache_total{event=\"hit\"} "));
        hits.is_some_and(|hits| hits != "0")
    });
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    wait_until("the policy to be refused", || {
        let (status, body) = readiness(&weir);
        status == 200
            && body["warnings"].to_string().contains("store_refused_on_grace")
            && body["details"]
                .to_string()
                .contains("set maxmemory-policy to noeviction")
    });
    weir.wait_for_store(false);
    assert_eq!(
        weir.exchange(&Wire::Messages.request(&key, "hi")).status,
        200,
        "within its grace"
    );
    assert_eq!(weir.exchange(&Wire::Messages.request(&unseen, "hi")).status, 503);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    wait_until("readiness again", || readiness(&weir).0 == 200);
    wait_until("service again", || {
        weir.exchange(&Wire::Messages.request(&unseen, "hi")).status == 200
    });
    wait_until("a row of each that was served", || {
        let rows = weir.cli(&["log", "query"], &["--json"]);
        text(&rows.stdout).lines().count() == served + 2
    });
}

#[test]
fn check_notices_passwords_and_certificates_that_are_not_there() {
    let folder = TempDir::new().unwrap();
    let conf = folder.path().join("weir.toml");
    let redis = "[store]\nengine = \"redis\"\n[store.redis]\nmode = \"sentinel\"\nmaster_name = \"main\"\n";
    let refers =
        "password = \"env:WEIR_TEST_NOT_SET\"\nsentinel_password = \"file:gone\"\ntls = true\nca_file = \"gone.pem\"\n";
    std::fs::write(&conf, format!("{redis}{refers}")).unwrap();
    let checked = check(&conf, &[]);
    let said = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(EX_CONFIG), "{said}");
    for (line, key) in [(6, "password"), (7, "sentinel_password"), (9, "ca_file")] {
        assert!(
            said.contains(&format!("weir.toml:{line}: key `store.redis.{key}`: ")),
            "{key}: {said}"
        );
    }
    assert!(
        said.contains("env:WEIR_TEST_NOT_SET is missing: set the variable"),
        "{said}"
    );
    std::fs::write(folder.path().join("gone"), "secret").unwrap();
    std::fs::write(folder.path().join("gone.pem"), "no certificate").unwrap();
    std::fs::write(
        &conf,
        format!("{redis}{}", refers.replace("WEIR_TEST_NOT_SET", PASSWORD_VARIABLE)),
    )
    .unwrap();
    let said = text(&check(&conf, &[]).stderr);
    assert!(
        said.contains("contains no PEM certificate") && said.lines().count() == 1,
        "{said}"
    );
    // What another engine would need is asked for when it is chosen.
    std::fs::write(
        &conf,
        format!("{redis}{refers}").replace("engine = \"redis\"", "engine = \"embedded\""),
    )
    .unwrap();
    assert!(check(&conf, &[]).status.success());
}

#[test]
fn readiness_waits_for_the_admin_socket() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Who connects to a socket with a full queue waits, and so does weir before it takes the path.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stuck = {
        let _inside = runtime.enter();
        let socket = tokio::net::UnixSocket::new_stream().unwrap();
        socket.bind(path("admin.sock")).unwrap();
        socket.listen(0).unwrap()
    };
    let _queued = UnixStream::connect(path("admin.sock")).unwrap();
    let port = free_port();
    std::fs::write(path("secret"), "provider-secret").unwrap();
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\n[ops]\nlisten = \"127.0.0.1:{port}\"\n[stability]\nlisten = \"127.0.0.1:0\"\n\
         [store.embedded]\npath = \"store\"\n[journal]\npath = \"journal\"\n[log]\naccess = \"off\"\n\
         [admin]\nsocket = \"admin.sock\"\naudit = \"audit.jsonl\"\n\
         [provider.anthropic]\nsecret = \"file:secret\"\nbase_url = \"http://127.0.0.1:9\"\n"
    );
    std::fs::write(path("weir.toml"), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["serve", "--conf"]).arg(path("weir.toml"));
    let mut process = Process::start(&command, folder.path(), "weir");
    wait_until("the ops listener", || {
        assert!(process.ended().is_none(), "{}", process.err());
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let ready = || Client::connect(([127, 0, 0, 1], port).into()).exchange(&Request::get("/readyz"));
    let before = ready();
    assert_eq!(before.status, 503, "{}", before.text());
    assert_eq!(before.json()["reasons"].to_string(), "[\"admin_not_listening\"]");
    drop(stuck);
    wait_until("readiness with the admin socket", || ready().status == 200);
    UnixStream::connect(path("admin.sock")).unwrap();
}
