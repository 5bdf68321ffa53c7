//! `weir upgrade`: has another process take a running weir's place.

use std::{io::Write, time::Duration};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};
use crate::api::node::{Upgrade, Upgraded};

/// How long the new process may take to serve: longer than the running one gives it.
const UPGRADE_WAIT: Duration = Duration::from_secs(900);

/// Runs it.
pub(crate) async fn run(args: &ClientArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let reply = client.ask_within(UPGRADE_WAIT, None, &Upgrade {}).await?;
    if args.json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    let Upgraded { pid, running } = reply.read()?;
    let running = match running {
        0 => "has nothing left to do and ends".to_owned(),
        1 => "ends with the request that runs in it".to_owned(),
        more => format!("ends with the last of {more} requests that run in it"),
    };
    writeln!(out, "process {pid} serves; the one before it {running}")?;
    Ok(())
}
