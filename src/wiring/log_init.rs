//! `weir log init`: sets up the log's database.

use std::io::Write;

use serde_json::json;

use crate::{
    cli::log::init::LogInitArgs,
    config::log_home::LogHome,
    sinks::postgres::{Grants, set_up},
    wiring::{StartError, configuration::load, log_postgres, output::printed, runtimes::client_runtime},
};

/// Runs the command to its end.
pub(super) fn run(args: &LogInitArgs, out: &mut impl Write) -> Result<(), StartError> {
    let config = load(&args.conf)?;
    let LogHome::Postgres(postgres) = &config.log.home else {
        let value = json!({ "home": "other", "applied": [] });
        return told(
            args,
            out,
            "the log is not at home in Postgres, so there is nothing to set up",
            &value,
        );
    };
    let owner = args.owner.as_ref().unwrap_or(&postgres.url);
    let settings = log_postgres::settings(postgres, owner)?;
    let grants = Grants {
        writers: args.grant_writer.clone(),
        readers: args.grant_reader.clone(),
    };
    let applied = client_runtime()?.block_on(set_up(&settings, &grants));
    let applied = applied.map_err(|error| StartError::failed("weir log init", error))?;
    let text = if applied.is_empty() {
        "the database was set up already".to_owned()
    } else {
        let numbers: Vec<String> = applied.iter().map(ToString::to_string).collect();
        format!("the database is set up, migrations applied: {}", numbers.join(", "))
    };
    told(args, out, &text, &json!({ "home": "postgres", "applied": applied }))
}

fn told(args: &LogInitArgs, out: &mut impl Write, text: &str, value: &serde_json::Value) -> Result<(), StartError> {
    let written = if args.json {
        writeln!(out, "{value}")
    } else {
        writeln!(out, "{text}")
    };
    printed(written)
}
