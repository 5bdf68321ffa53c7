//! `weir upgrade`: has another process take a running weir's place.

use std::{io::Write, time::Duration};

use http::Method;
use serde_json::Value;

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};

/// How long the new process may take to serve: longer than the running one gives it.
const UPGRADE_WAIT: Duration = Duration::from_secs(900);

/// Runs it.
pub(crate) async fn run(args: &ClientArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let answer = client
        .call_within(UPGRADE_WAIT, Method::POST, "/v1/upgrade", None)
        .await?;
    if args.json {
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let number = |name: &str| answer.get(name).and_then(Value::as_u64).unwrap_or(0);
    let running = match number("running") {
        0 => "has nothing left to do and ends".to_owned(),
        1 => "ends with the request that runs in it".to_owned(),
        more => format!("ends with the last of {more} requests that run in it"),
    };
    writeln!(out, "process {} serves; the one before it {running}", number("pid"))?;
    Ok(())
}
