//! The JSON of records, as it is written for each request: what serde makes of them, in a fraction of the instructions.
//!
//! Each field's name stands here with the punctuation around it, and most texts need no escapes. What is seldom there is left
//! to serde.

#[cfg(test)]
mod tests;

use crate::domain::{
    ledger::{
        consumption::{Modifiers, Part, Row, UsageSource},
        journaled::{Admitted, CRASH, Checkpoint, Record},
        lease::LeaseId,
        step::{Change, Settlement, Step},
        tag::Tag,
    },
    money::NanoUsd,
    quick_json::Json,
    wire::usage::Usage,
};

static NO_MODIFIERS: Modifiers = Modifiers {
    service_tier: None,
    speed: None,
    geo: None,
};

impl Record {
    /// Appends the record's JSON.
    ///
    /// # Errors
    /// As for [`serde_json::to_writer`].
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let mut json = Json(out);
        match self {
            Self::Admit(admitted) => admit(admitted, &mut json),
            Self::Checkpoint(reached) => checkpoint(reached, &mut json),
            Self::Step {
                account,
                step:
                    Step {
                        seq,
                        change: Change::Settle(settlement),
                    },
            } => {
                json.text(r#"{"kind":"step","account":"#, account)?;
                json.value(r#","step":{"seq":"#, seq)?;
                settle(settlement, &mut json)?;
                json.put("}}");
                Ok(())
            }
            Self::Step { .. } | Self::Key { .. } | Self::KeyGone { .. } => json.value("", self),
        }
    }
}

impl Row {
    /// Appends the row's JSON.
    ///
    /// # Errors
    /// As for [`serde_json::to_writer`].
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        RowForm::of(self).write(&mut Json(out))
    }
}

fn admit(admitted: &Admitted, json: &mut Json<'_>) -> serde_json::Result<()> {
    let request = &admitted.request;
    let usage = Usage {
        input_uncached: admitted.input_tokens,
        ..Usage::default()
    };
    json.put(r#"{"kind":"admit","row":"#);
    let row = RowForm {
        time_ms: request.admitted_ms,
        admitted_ms: request.admitted_ms,
        request_id: &request.id,
        account: &request.account,
        key_id: request.key.as_str(),
        protocol: &request.protocol,
        model_asked: &request.model_asked,
        model: &request.model,
        provider: &admitted.provider,
        status: 0,
        outcome: CRASH,
        stream: request.stream,
        tags: &request.tags,
        usage: &usage,
        usage_source: UsageSource::Estimated,
        parts: &[],
        modifiers: &NO_MODIFIERS,
        price_version: &admitted.price_version,
        cost: admitted.input_cost,
        latency_ms: admitted.latency_ms,
        ttft_ms: None,
        hold: request.hold,
        attempts: None,
    };
    row.write(json)?;
    json.value(r#","tokens_estimated":"#, &admitted.tokens_estimated)?;
    json.lease(admitted.lease.as_ref())?;
    json.put("}");
    Ok(())
}

fn checkpoint(reached: &Checkpoint, json: &mut Json<'_>) -> serde_json::Result<()> {
    let Checkpoint {
        request,
        status,
        usage,
        source,
        modifiers,
        parts,
        cost,
        provider,
        latency_ms,
        ttft_ms,
        attempts,
    } = reached;
    json.text(r#"{"kind":"checkpoint","request":"#, request)?;
    json.value(r#","status":"#, status)?;
    json.usage(usage)?;
    json.value(r#","source":"#, source)?;
    json.modifiers(modifiers)?;
    json.list(r#","parts":"#, parts)?;
    json.value(r#","cost":"#, cost)?;
    json.text(r#","provider":"#, provider)?;
    json.value(r#","latency_ms":"#, latency_ms)?;
    json.value(r#","ttft_ms":"#, ttft_ms)?;
    json.known(r#","attempts":"#, attempts.as_ref())?;
    json.put("}");
    Ok(())
}

/// The change of a step, with the name that it has there.
fn settle(settlement: &Settlement, json: &mut Json<'_>) -> serde_json::Result<()> {
    let Settlement {
        request,
        key,
        at_ms,
        tokens_estimated,
        tokens_used,
        cost,
        lease,
        row,
    } = settlement;
    json.text(r#","change":{"op":"settle","request":"#, request)?;
    json.text(r#","key":"#, key.as_str())?;
    json.value(r#","at_ms":"#, at_ms)?;
    json.value(r#","tokens_estimated":"#, tokens_estimated)?;
    json.value(r#","tokens_used":"#, tokens_used)?;
    json.value(r#","cost":"#, cost)?;
    json.lease(lease.as_ref())?;
    json.put(r#","row":"#);
    match row {
        Some(row) => RowForm::of(row).write(json)?,
        None => json.put("null"),
    }
    json.put("}");
    Ok(())
}

/// A row, whatever has its fields.
struct RowForm<'a> {
    time_ms: i64,
    admitted_ms: i64,
    request_id: &'a str,
    account: &'a str,
    key_id: &'a str,
    protocol: &'a str,
    model_asked: &'a str,
    model: &'a str,
    provider: &'a str,
    status: u16,
    outcome: &'a str,
    stream: bool,
    tags: &'a [Tag],
    usage: &'a Usage,
    usage_source: UsageSource,
    parts: &'a [Part],
    modifiers: &'a Modifiers,
    price_version: &'a str,
    cost: NanoUsd,
    latency_ms: u64,
    ttft_ms: Option<u64>,
    hold: Option<NanoUsd>,
    attempts: Option<u32>,
}

impl<'a> RowForm<'a> {
    fn of(row: &'a Row) -> Self {
        let Row {
            time_ms,
            admitted_ms,
            request_id,
            account,
            key_id,
            protocol,
            model_asked,
            model,
            provider,
            status,
            outcome,
            stream,
            tags,
            usage,
            usage_source,
            parts,
            modifiers,
            price_version,
            cost_nano_usd,
            latency_ms,
            ttft_ms,
            hold_nano_usd,
            attempts,
        } = row;
        Self {
            time_ms: *time_ms,
            admitted_ms: *admitted_ms,
            request_id,
            account,
            key_id: key_id.as_str(),
            protocol,
            model_asked,
            model,
            provider,
            status: *status,
            outcome,
            stream: *stream,
            tags,
            usage,
            usage_source: *usage_source,
            parts,
            modifiers,
            price_version,
            cost: *cost_nano_usd,
            latency_ms: *latency_ms,
            ttft_ms: *ttft_ms,
            hold: *hold_nano_usd,
            attempts: *attempts,
        }
    }

    fn write(&self, json: &mut Json<'_>) -> serde_json::Result<()> {
        json.value(r#"{"time_ms":"#, &self.time_ms)?;
        json.value(r#","admitted_ms":"#, &self.admitted_ms)?;
        json.text(r#","request_id":"#, self.request_id)?;
        json.text(r#","account":"#, self.account)?;
        json.text(r#","key_id":"#, self.key_id)?;
        json.text(r#","protocol":"#, self.protocol)?;
        json.text(r#","model_asked":"#, self.model_asked)?;
        json.text(r#","model":"#, self.model)?;
        json.text(r#","provider":"#, self.provider)?;
        json.value(r#","status":"#, &self.status)?;
        json.text(r#","outcome":"#, self.outcome)?;
        json.value(r#","stream":"#, &self.stream)?;
        json.list(r#","tags":"#, self.tags)?;
        json.usage(self.usage)?;
        json.value(r#","usage_source":"#, &self.usage_source)?;
        json.list(r#","parts":"#, self.parts)?;
        json.modifiers(self.modifiers)?;
        json.text(r#","price_version":"#, self.price_version)?;
        json.value(r#","cost_nano_usd":"#, &self.cost)?;
        json.value(r#","latency_ms":"#, &self.latency_ms)?;
        json.value(r#","ttft_ms":"#, &self.ttft_ms)?;
        json.known(r#","hold_nano_usd":"#, self.hold.as_ref())?;
        json.known(r#","attempts":"#, self.attempts.as_ref())?;
        json.put("}");
        Ok(())
    }
}

impl Json<'_> {
    /// The lease that a request was admitted out of.
    fn lease(&mut self, lease: Option<&LeaseId>) -> serde_json::Result<()> {
        self.known(r#","lease":"#, lease)
    }

    fn usage(&mut self, usage: &Usage) -> serde_json::Result<()> {
        let Usage {
            input_uncached,
            cache_read,
            cache_write_short,
            cache_write_long,
            output_text,
            output_reasoning,
            tool_input,
            web_searches,
            web_fetches,
            file_searches,
            code_interpreter_calls,
            image_generations,
            input_audio,
            input_image,
            cache_read_audio,
            cache_read_image,
            output_audio,
            output_image,
        } = usage;
        for (before, count) in [
            (r#","input_uncached":"#, input_uncached),
            (r#","cache_read":"#, cache_read),
            (r#","cache_write_short":"#, cache_write_short),
            (r#","cache_write_long":"#, cache_write_long),
            (r#","output_text":"#, output_text),
            (r#","output_reasoning":"#, output_reasoning),
            (r#","tool_input":"#, tool_input),
            (r#","web_searches":"#, web_searches),
            (r#","web_fetches":"#, web_fetches),
            (r#","file_searches":"#, file_searches),
            (r#","code_interpreter_calls":"#, code_interpreter_calls),
            (r#","image_generations":"#, image_generations),
            (r#","input_audio":"#, input_audio),
            (r#","input_image":"#, input_image),
            (r#","cache_read_audio":"#, cache_read_audio),
            (r#","cache_read_image":"#, cache_read_image),
            (r#","output_audio":"#, output_audio),
            (r#","output_image":"#, output_image),
        ] {
            if *count > 0 {
                self.value(before, count)?;
            }
        }
        Ok(())
    }

    fn modifiers(&mut self, modifiers: &Modifiers) -> serde_json::Result<()> {
        let Modifiers {
            service_tier,
            speed,
            geo,
        } = modifiers;
        for (before, name) in [
            (r#","service_tier":"#, service_tier),
            (r#","speed":"#, speed),
            (r#","geo":"#, geo),
        ] {
            if let Some(name) = name {
                self.text(before, name)?;
            }
        }
        Ok(())
    }
}
