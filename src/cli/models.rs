//! `weir models`: the models that are served now, by providers that nobody has switched off.

use std::io::Write;

use http::Method;
use serde_json::Value;

use super::admin_client::{AdminClient, AdminClientError, ClientArgs};

/// Prints them, sorted by name.
pub(crate) async fn run(args: &ClientArgs, client: &AdminClient, out: &mut impl Write) -> Result<(), AdminClientError> {
    let answer = client.call(Method::GET, "/v1/models", None).await?;
    let models = answer
        .get("models")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if !args.json {
        writeln!(out, "{:<32}  {:<16}  PROTOCOLS", "MODEL", "PROVIDER")?;
    }
    for model in models {
        if args.json {
            writeln!(out, "{model}")?;
            continue;
        }
        let text = |field: &str| model.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let protocols = model
            .get("protocols")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let protocols: Vec<&str> = protocols.iter().filter_map(Value::as_str).collect();
        writeln!(
            out,
            "{:<32}  {:<16}  {}",
            text("name"),
            text("provider"),
            protocols.join(", ")
        )?;
    }
    Ok(())
}
