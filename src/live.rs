//! What a reload replaces as a whole. A request takes one of these when it begins and keeps it to its end, so that it
//! never sees half of one configuration and half of another.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::{config::Config, domain::catalogue::Catalogue, pools::Pools};

/// One version of everything that can be loaded anew.
#[derive(Debug)]
pub struct Live {
    /// The configuration.
    pub config: Arc<Config>,
    /// Models, providers and their rules.
    pub catalogue: Arc<Catalogue>,
    /// The providers' credentials and places, with what is known of their health.
    pub pools: Arc<Pools>,
}

/// The version in force.
#[derive(Debug)]
pub struct LiveCell(ArcSwap<Live>);

impl LiveCell {
    /// Begins with a version.
    pub fn new(live: Live) -> Self {
        Self(ArcSwap::from_pointee(live))
    }

    /// The version in force now.
    pub fn get(&self) -> Arc<Live> {
        self.0.load_full()
    }

    /// Puts another version in force; requests that run keep theirs.
    pub fn set(&self, live: Live) {
        self.0.store(Arc::new(live));
    }
}
