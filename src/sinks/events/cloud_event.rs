//! Rows as CloudEvents 1.0 in JSON: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md>.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
};

/// The type of all events.
const TYPE: &str = "weir.request.billed";

/// A row as a CloudEvent 1.0: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md>.
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    subject: &'a str,
    time: &'a str,
    datacontenttype: &'static str,
    data: EventRow<'a>,
}

/// The row as the admin API shows it: with its time also as text.
#[derive(Serialize)]
struct EventRow<'a> {
    time: &'a str,
    #[serde(flatten)]
    row: &'a Row,
}

/// Encodes rows of a node as one batch. An event's id identifies its row.
pub(super) fn batch(source: &str, node: &NodeId, rows: &[Arc<NumberedRow>]) -> Result<Vec<u8>, serde_json::Error> {
    let event = |numbered: &'_ Arc<NumberedRow>| -> serde_json::Result<Box<serde_json::value::RawValue>> {
        let time = &*time(numbered.row.time_ms);
        let event = CloudEvent {
            specversion: "1.0",
            id: format!("{node}-{}", numbered.number),
            source,
            kind: TYPE,
            subject: &numbered.row.account,
            time,
            datacontenttype: "application/json",
            data: EventRow {
                time,
                row: &numbered.row,
            },
        };
        serde_json::value::to_raw_value(&event)
    };
    let events = rows.iter().map(event).collect::<Result<Vec<_>, _>>()?;
    serde_json::to_vec(&events)
}

/// When a row ended, as text; the Unix epoch if the calendar does not have that time.
fn time(unix_ms: i64) -> String {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sinks::contract::samples::{BEGIN_MS, node, row};

    #[test]
    fn a_row_is_an_event_with_an_id_of_its_own_and_all_that_the_log_shows() {
        let row = row(7, BEGIN_MS);
        let rows = [8_u64, 9].map(|number| {
            Arc::new(NumberedRow {
                number,
                row: row.clone(),
            })
        });
        let mut data = serde_json::to_value(&row).unwrap();
        data["time"] = "2026-11-01T00:00:00.000Z".into();
        let body = batch("weir/eu", &node(1), &rows).unwrap();
        let events: Vec<Value> = serde_json::from_slice(&body).unwrap();
        let expected = |number: u64| {
            json!({
                "specversion": "1.0",
                "id": format!("node_0000000000000001-{number}"),
                "source": "weir/eu",
                "type": "weir.request.billed",
                "subject": row.account,
                "time": "2026-11-01T00:00:00.000Z",
                "datacontenttype": "application/json",
                "data": data,
            })
        };
        assert_eq!(events, [expected(8), expected(9)]);
        assert_eq!(events[0]["data"]["cost_nano_usd"], row.cost_nano_usd.nanos());
    }

    #[test]
    fn every_moment_that_a_clock_may_say_is_written() {
        assert_eq!(time(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(time(i64::MAX), time(0));
    }
}
