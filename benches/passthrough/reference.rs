//! What the provider sends directly: the measure of every answer that comes through a proxy.

use std::{net::SocketAddr, ops::Range};

use serde_json::Value;

use crate::{
    driver::{Connection, Expect},
    fleet::{Fleet, Script},
    request::{Form, MODEL, request},
};

/// How long a name of an answer is that is rendered anew, in bytes.
const NAME_BYTES: usize = 32;

/// A whole answer of the provider.
pub(crate) struct Reference {
    /// Its bytes.
    pub(crate) body: Vec<u8>,
    /// The chunks it came in; 0 for an answer with a length.
    pub(crate) chunks: u64,
    /// Where each delta of a stream ends in the body.
    pub(crate) delta_ends: Vec<usize>,
    /// How the provider called the requests that were asked for this.
    pub(crate) asked: Vec<String>,
    /// Where each answer has a name of its own; empty where the provider says the same every time.
    name: Range<usize>,
}

impl Reference {
    /// Asks a fleet's provider twice: it must say the same again, completely and in order.
    pub(crate) async fn read(fleet: &Fleet, form: Form) -> Result<Self, String> {
        Self::of(fleet.provider, fleet.script, form).await
    }

    /// The same, of a provider with no fleet around it.
    pub(crate) async fn of(provider: SocketAddr, script: Script, form: Form) -> Result<Self, String> {
        Self::of_model(provider, script, form, MODEL).await
    }

    /// The same, of a model.
    pub(crate) async fn of_model(
        provider: SocketAddr,
        script: Script,
        form: Form,
        model: &str,
    ) -> Result<Self, String> {
        let request = request(form, model, "any-key");
        let (mut one, mut other) = (Connection::new(provider), Connection::new(provider));
        let first = one.ask(&request, Expect::Anything);
        let second = other.ask(&request, Expect::Anything);
        // A slow stream takes long enough once.
        let (answer, again) = if form == Form::Stream {
            tokio::try_join!(first, second)?
        } else {
            (first.await?, second.await?)
        };
        let name = differing(&answer.body, &again.body)?;
        if !name.is_empty() && !matches!(form, Form::Paced { .. }) {
            return Err("not repeatable: the provider's answers differ".to_owned());
        }
        match form {
            Form::Unary | Form::Long(_) => check_message(&answer.body)?,
            Form::Stream => check_stream(&answer.body, script.deltas)?,
            Form::Paced { deltas, .. } => check_stream(&answer.body, deltas)?,
            Form::Count => check_count(&answer.body)?,
        }
        Ok(Self {
            delta_ends: delta_ends(&answer.body),
            asked: vec![answer.request_id, again.request_id],
            body: answer.body,
            chunks: answer.chunks,
            name,
        })
    }

    /// What an answer must be.
    pub(crate) fn expected(&self) -> Expect<'_> {
        if self.name.is_empty() {
            Expect::Whole(&self.body)
        } else {
            Expect::But(&self.body, self.name.clone())
        }
    }
}

/// Where two answers differ, which may only be a name.
fn differing(one: &[u8], other: &[u8]) -> Result<Range<usize>, String> {
    let differ: Vec<usize> = (0..one.len().max(other.len()))
        .filter(|place| one.get(*place) != other.get(*place))
        .collect();
    let (Some(first), Some(last)) = (differ.first(), differ.last()) else {
        return Ok(0..0);
    };
    if one.len() != other.len() || last - first >= NAME_BYTES {
        return Err("not repeatable: the provider's answers differ in more than a name".to_owned());
    }
    // The first digits of two names may be the same by chance.
    let before = "msg_".as_bytes();
    let start = (first.saturating_sub(NAME_BYTES)..=*first).rev();
    let starts_name = |place: &usize| one[..*place].ends_with(before);
    let start = start
        .into_iter()
        .find(starts_name)
        .ok_or("not repeatable: no name is where the answers differ")?;
    Ok(start..start + NAME_BYTES)
}

fn delta_ends(body: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(body);
    let mut at = 0;
    let ends = text.split_inclusive("\n\n").filter_map(|event| {
        at += event.len();
        event.starts_with("event: content_block_delta").then_some(at)
    });
    ends.collect()
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
