//! Builds the sink that posts events, from its settings.

use std::sync::Arc;

use crate::{
    config::{Config, log_events::LogEventsConfig},
    sinks::events::{BillingEvents, EventsSettings},
    wiring::{
        StartError,
        log_postgres::{pem, secret},
    },
};

/// The folder, in the journal's, with the position of the receiver.
const EVENTS_FOLDER: &str = "events";

/// Builds the sink that posts events; does not connect yet.
pub(super) fn open_events(events: &LogEventsConfig, config: &Config) -> Result<Arc<BillingEvents>, StartError> {
    let authorization = events.authorization.as_ref();
    let settings = EventsSettings {
        url: events.url.clone(),
        secret: secret("[log.events] secret", &events.secret)?,
        authorization: authorization
            .map(|one| secret("[log.events] authorization", one))
            .transpose()?,
        source: events.source.clone(),
        ca: events
            .ca_file
            .as_deref()
            .map(|path| pem("[log.events] ca_file", path))
            .transpose()?,
        batch_rows: events.batch_rows,
        connect: events.connect,
        answer: events.answer,
        folder: config.journal.path.join(EVENTS_FOLDER),
    };
    let events = BillingEvents::new(settings).map_err(|error| StartError::Configuration(error.to_string()))?;
    Ok(Arc::new(events))
}
