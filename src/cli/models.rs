//! `weir models`: the models that are served now, by providers that are not disabled.

use std::io::Write;

use super::admin_client::{AdminClient, AdminClientError, ClientArgs, write_json};
use crate::{api::providers::ListModels, domain::wire::Protocol};

/// Prints the models, sorted by name.
pub(crate) async fn list_models(
    args: &ClientArgs,
    client: &AdminClient,
    out: &mut impl Write,
) -> Result<(), AdminClientError> {
    let answer = client.request(&ListModels {}).await?.read()?;
    if !args.json {
        writeln!(out, "{:<32}  {:<16}  PROTOCOLS", "MODEL", "PROVIDER")?;
    }
    for model in &answer.models {
        if args.json {
            write_json(out, model)?;
            continue;
        }
        let protocols: Vec<&str> = model.protocols.iter().copied().map(Protocol::as_str).collect();
        let (name, provider) = (&model.name, &model.provider);
        writeln!(out, "{name:<32}  {provider:<16}  {}", protocols.join(", "))?;
    }
    Ok(())
}
