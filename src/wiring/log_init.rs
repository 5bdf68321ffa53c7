//! `weir log init`: sets up the log's database.

use std::io::Write;

use serde_json::json;

use crate::{
    cli::log::init::LogInitArgs,
    config::log_home::LogBackendConfig,
    sinks::postgres::{Grants, set_up},
    wiring::{StartError, configuration::load, log_postgres, output::print_result, runtimes::client_runtime},
};

/// Runs `weir log init`: sets up the log's database.
pub(super) fn run_log_init(args: &LogInitArgs, out: &mut impl Write) -> Result<(), StartError> {
    let config = load(&args.conf)?;
    let LogBackendConfig::Postgres(postgres) = &config.log.home else {
        let value = json!({ "home": "other", "applied": [] });
        return print_init(
            args,
            out,
            "the log backend is not Postgres, so there is nothing to set up",
            &value,
        );
    };
    let owner = args.owner.as_ref().unwrap_or(&postgres.url);
    let settings = log_postgres::postgres_settings(postgres, owner)?;
    let grants = Grants {
        writers: args.grant_writer.clone(),
        readers: args.grant_reader.clone(),
    };
    let applied = client_runtime()?.block_on(set_up(&settings, &grants));
    let applied = applied.map_err(|error| StartError::failed("weir log init", error))?;
    let text = if applied.is_empty() {
        "the database is already set up".to_owned()
    } else {
        let numbers: Vec<String> = applied.iter().map(ToString::to_string).collect();
        format!("the database is set up, migrations applied: {}", numbers.join(", "))
    };
    print_init(args, out, &text, &json!({ "home": "postgres", "applied": applied }))
}

fn print_init(
    args: &LogInitArgs,
    out: &mut impl Write,
    text: &str,
    value: &serde_json::Value,
) -> Result<(), StartError> {
    let written = if args.json {
        writeln!(out, "{value}")
    } else {
        writeln!(out, "{text}")
    };
    print_result(written)
}
