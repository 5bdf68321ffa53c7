//! What this node remembers of its metrics, for the conditions that look back.

use std::{sync::Arc, time::Instant};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use super::{
    ring::Ring,
    series::Sum,
    trend::{STEP, TRENDS, Trend},
};
use crate::{edges::clock, telemetry::metrics::Metrics};

/// The trends with what their sums were.
pub(crate) struct History {
    remembered: Mutex<Vec<Remembered>>,
}

struct Remembered {
    trend: &'static Trend,
    rings: Vec<(&'static Sum, Ring)>,
}

impl Default for History {
    fn default() -> Self {
        static ALL: [Trend; TRENDS.len()] = TRENDS;
        let remember = |trend: &'static Trend| Remembered {
            trend,
            rings: trend.rings(),
        };
        Self {
            remembered: Mutex::new(ALL.iter().map(remember).collect()),
        }
    }
}

impl History {
    /// Notes these metrics once in a while until told to stop.
    pub(crate) async fn run(self: Arc<Self>, metrics: Arc<Metrics>, mut stopped: watch::Receiver<bool>) {
        loop {
            self.note(&metrics.render(), clock::instant());
            if timeout(STEP, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return;
            }
        }
    }

    /// Takes a scrape of this moment.
    pub(super) fn note(&self, scrape: &str, at: Instant) {
        for remembered in self.remembered.lock().iter_mut() {
            for (sum, ring) in &mut remembered.rings {
                ring.note(at, sum.read(scrape));
            }
        }
    }

    /// What needs attention by a scrape of now and those before, a sentence each.
    pub(super) fn needed(&self, scrape: &str, now: Instant) -> Vec<String> {
        let mut said = Vec::new();
        let mut seen: Vec<(&Sum, String)> = Vec::new();
        for Remembered { trend, rings } in self.remembered.lock().iter() {
            let first = rings.first().map(|(sum, _)| *sum);
            for (labels, shown) in trend.found(scrape, rings, now) {
                // The gravest is said of each: what is down also fails.
                let Some(sum) = first else { continue };
                if seen.iter().any(|(of, there)| *of == sum && *there == labels) {
                    continue;
                }
                said.push(trend.sentence(&labels, &shown));
                seen.push((sum, labels));
            }
        }
        said
    }
}
