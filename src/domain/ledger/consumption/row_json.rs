//! Writes rows as JSON, as stores have them. The bytes are the same as serde's, in a fraction of the instructions.

#[cfg(test)]
pub(crate) mod tests;

use crate::domain::{
    ledger::consumption::{PriceModifiers, Row},
    quick_json::JsonWriter,
    wire::usage::Usage,
};

impl Row {
    /// Appends the row's JSON to `out`.
    ///
    /// # Errors
    /// As for [`serde_json::to_writer`].
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let Self {
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
        } = self;
        let mut json = JsonWriter(out);
        json.value(r#"{"time_ms":"#, time_ms)?;
        json.value(r#","admitted_ms":"#, admitted_ms)?;
        json.text(r#","request_id":"#, request_id)?;
        json.text(r#","account":"#, account)?;
        json.text(r#","key_id":"#, key_id.as_str())?;
        json.text(r#","protocol":"#, protocol)?;
        json.text(r#","model_asked":"#, model_asked)?;
        json.text(r#","model":"#, model)?;
        json.text(r#","provider":"#, provider)?;
        json.value(r#","status":"#, status)?;
        json.text(r#","outcome":"#, outcome)?;
        json.value(r#","stream":"#, stream)?;
        json.list(r#","tags":"#, tags)?;
        json.usage(usage)?;
        json.value(r#","usage_source":"#, usage_source)?;
        json.list(r#","parts":"#, parts)?;
        json.modifiers(modifiers)?;
        json.text(r#","price_version":"#, price_version)?;
        json.value(r#","cost_nano_usd":"#, cost_nano_usd)?;
        json.value(r#","latency_ms":"#, latency_ms)?;
        json.value(r#","ttft_ms":"#, ttft_ms)?;
        json.optional(r#","hold_nano_usd":"#, hold_nano_usd.as_ref())?;
        json.optional(r#","attempts":"#, attempts.as_ref())?;
        json.put("}");
        Ok(())
    }
}

impl JsonWriter<'_> {
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

    fn modifiers(&mut self, modifiers: &PriceModifiers) -> serde_json::Result<()> {
        let PriceModifiers {
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
