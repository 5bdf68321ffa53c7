//! What the provider sends directly: the measure of every answer that comes through a proxy.

use std::net::SocketAddr;

use serde_json::Value;

use crate::{
    driver::{Connection, Expect},
    fleet::{Fleet, Form, Script, direct_request},
};

/// A whole answer of the provider.
pub(crate) struct Reference {
    /// Its bytes.
    pub(crate) body: Vec<u8>,
    /// The chunks it came in; 0 for an answer with a length.
    pub(crate) chunks: u64,
}

impl Reference {
    /// Asks the provider twice: it must say the same again, completely and in order.
    pub(crate) async fn read(fleet: &Fleet, form: Form) -> Result<Self, String> {
        Self::of(fleet.provider, fleet.script, form).await
    }

    /// The same, of a provider with no fleet around it.
    pub(crate) async fn of(provider: SocketAddr, script: Script, form: Form) -> Result<Self, String> {
        let request = direct_request(form);
        let mut connection = Connection::new(provider);
        let answer = connection.ask(&request, Expect::Anything).await?;
        connection
            .ask(&request, Expect::Whole(&answer.body))
            .await
            .map_err(|bad| format!("not repeatable: {bad}"))?;
        match form {
            Form::Unary => check_message(&answer.body)?,
            Form::Stream => check_stream(&answer.body, script.deltas)?,
            Form::Count => check_count(&answer.body)?,
        }
        Ok(Self {
            body: answer.body,
            chunks: answer.chunks,
        })
    }

    /// Reads the provider's stream up to its first delta, which is all that a silent stream shows.
    pub(crate) async fn read_first_delta(provider: SocketAddr) -> Result<Vec<u8>, String> {
        let request = direct_request(Form::Stream);
        let first = Connection::new(provider).ask(&request, Expect::FirstDelta).await?;
        let again = Connection::new(provider)
            .ask(&request, Expect::Prefix(&first.body))
            .await;
        again.map_err(|bad| format!("not repeatable: {bad}"))?;
        Ok(first.body)
    }
}

fn check_message(body: &[u8]) -> Result<(), String> {
    let message: Value = serde_json::from_slice(body).map_err(|error| format!("not a message: {error}"))?;
    if message["type"] == "message" {
        Ok(())
    } else {
        Err("not a message".to_owned())
    }
}

fn check_count(body: &[u8]) -> Result<(), String> {
    let count: Value = serde_json::from_slice(body).map_err(|error| format!("not a count: {error}"))?;
    let tokens = count["input_tokens"].as_u64();
    tokens.map(drop).ok_or_else(|| "not a count".to_owned())
}

fn check_stream(body: &[u8], deltas: usize) -> Result<(), String> {
    let text = std::str::from_utf8(body).map_err(|_| "not a text".to_owned())?;
    let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let sent = kinds.iter().filter(|kind| **kind == "content_block_delta").count();
    let whole = kinds.first() == Some(&"message_start") && kinds.last() == Some(&"message_stop");
    if whole && text.ends_with("\n\n") && sent == deltas {
        Ok(())
    } else {
        Err(format!(
            "not a whole stream of {deltas} deltas: {sent} deltas, {} events",
            kinds.len()
        ))
    }
}
