//! `weir upgrade`: replaces a running weir by a new process.

use std::{io::Write, time::Duration};

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};
use crate::api::node::{Upgrade, UpgradedProcess};

/// The timeout until the new process serves: longer than the running one waits for it.
const UPGRADE_WAIT: Duration = Duration::from_secs(900);

/// Runs `weir upgrade`.
pub(crate) async fn upgrade_process(
    args: &ClientArgs,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let reply = client.request_within(UPGRADE_WAIT, None, &Upgrade {}).await?;
    if args.json {
        writeln!(out, "{}", reply.text)?;
        return Ok(());
    }
    let UpgradedProcess { pid, running } = reply.read()?;
    let running = match running {
        0 => "has no running requests and ends".to_owned(),
        1 => "ends after its running request".to_owned(),
        more => format!("ends after its {more} running requests"),
    };
    writeln!(out, "process {pid} serves now; the previous one {running}")?;
    Ok(())
}
