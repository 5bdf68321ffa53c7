//! Whether a place works: by its free path where its file gives one, else by a connection that stands.

use async_trait::async_trait;
use pingora::Result;
use pingora_load_balancing::{
    Backend,
    health_check::{HealthCheck, HttpHealthCheck, TcpHealthCheck},
};

use super::places::Origins;
use crate::domain::rules::{Origin, WeightedOrigin};

/// Checks in a row that change what is believed of a place.
const CHANGES_AFTER: usize = 2;

/// The check of each place of one provider. Certificates are not verified here: nothing secret is sent, and the
/// connections that carry requests verify theirs.
pub(super) struct PlaceCheck(Vec<(Origin, Box<dyn HealthCheck + Send + Sync>)>);

impl PlaceCheck {
    pub(super) fn new(origins: &[WeightedOrigin]) -> Self {
        Self(
            origins
                .iter()
                .map(|place| (place.origin.clone(), check(place)))
                .collect(),
        )
    }
}

fn check(place: &WeightedOrigin) -> Box<dyn HealthCheck + Send + Sync> {
    let origin = &place.origin;
    if let Some(path) = &place.health_path {
        let mut check = HttpHealthCheck::new(&origin.host, origin.https);
        check.req.set_raw_path(path.as_bytes()).unwrap_or_default();
        // The name is set already; a `Host` with the port is what the place expects.
        let _ = check.req.insert_header(http::header::HOST, origin.authority());
        check.peer_template.options.verify_cert = false;
        return Box::new(check);
    }
    let mut check = if origin.https {
        TcpHealthCheck::new_tls(&origin.host)
    } else {
        TcpHealthCheck::new()
    };
    check.peer_template.options.verify_cert = false;
    check
}

#[async_trait]
impl HealthCheck for PlaceCheck {
    async fn check(&self, target: &Backend) -> Result<()> {
        let Some(Origins(origins)) = target.ext.get::<Origins>() else {
            return Ok(());
        };
        for origin in origins.iter() {
            if let Some((_, check)) = self.0.iter().find(|(known, _)| known == origin.as_ref()) {
                check.check(target).await?;
            }
        }
        Ok(())
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        tracing::warn!(address = %target.addr, healthy, "a place of a provider changed its health");
    }

    fn health_threshold(&self, _success: bool) -> usize {
        CHANGES_AFTER
    }
}
