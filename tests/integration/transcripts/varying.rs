//! What differs from one run to the next, replaced by words.

use std::net::SocketAddr;

use serde_json::Value as Json;

/// Fields of lines and rows that tell times and durations, and which prices were in force.
const FIELDS: [&str; 6] = [
    "time",
    "time_ms",
    "admitted_ms",
    "latency_ms",
    "ttft_ms",
    "price_version",
];

/// Headers of answers that tell times.
const HEADERS: [&str; 2] = ["date", "anthropic-ratelimit-requests-reset"];

/// The texts to replace.
pub(super) struct Varying(Vec<(String, String)>);

impl Varying {
    /// The ids that these lines of the access log have, and the provider's address.
    pub(super) fn of(lines: &[Json], provider: SocketAddr) -> Varying {
        let ids = lines.iter().enumerate().filter_map(|(number, line)| {
            let id = line["request_id"].as_str()?;
            Some((id.to_owned(), format!("REQUEST-{}", number + 1)))
        });
        let keys = lines.iter().filter_map(|line| line["key_id"].as_str());
        let keys = keys.map(|key| (key.to_owned(), "KEY".to_owned()));
        let address = (provider.to_string(), "PROVIDER".to_owned());
        Varying(ids.chain(keys).chain([address]).collect())
    }

    /// A line or row, one field to a line, sorted.
    pub(super) fn json(&self, value: &Json) -> String {
        let Json::Object(fields) = value else {
            return format!("{value}\n");
        };
        let mut lines: Vec<String> = fields
            .iter()
            .map(
                |(name, value)| match FIELDS.contains(&name.as_str()) && !value.is_null() {
                    true => format!("{name} VARIES"),
                    false => format!("{name} {value}"),
                },
            )
            .collect();
        lines.sort_unstable();
        lines.join("\n") + "\n--\n"
    }

    /// The whole transcript without what varies.
    pub(super) fn text(&self, text: &str) -> String {
        let text = self
            .0
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        text.lines()
            .map(|line| match line.split_once(": ") {
                Some((name, _)) if HEADERS.iter().any(|varying| name.eq_ignore_ascii_case(varying)) => {
                    format!("{name}: VARIES\n")
                }
                _ => format!("{line}\n"),
            })
            .collect()
    }
}
