//! All answers from one snapshot, rendered once, so that readers cost neither calls to the store nor rendering.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::{
    domain::{
        catalogue::Catalogue,
        faults::stability::{Hour, ModelWindow, StabilityWindow},
    },
    stability::{
        Snapshot,
        public::{document::RenderedDocument, page, record},
    },
};

/// The answers for one snapshot, catalogue and hour.
#[derive(Debug)]
pub(super) struct Edition {
    snapshot: Arc<Snapshot>,
    catalogue: Arc<Catalogue>,
    window: StabilityWindow,
    summary: OnceLock<RenderedDocument>,
    index: OnceLock<RenderedDocument>,
    /// In the order of the window's models.
    models: Vec<ModelDocuments>,
}

/// The answers about one model.
#[derive(Debug, Default)]
struct ModelDocuments {
    detail: OnceLock<RenderedDocument>,
    page: OnceLock<RenderedDocument>,
}

impl Edition {
    /// Covers the models of the catalogue, and those that served in the window.
    fn new(snapshot: Arc<Snapshot>, catalogue: Arc<Catalogue>, now: Hour) -> Self {
        let names = catalogue.served_models().map(|model| model.name.as_str());
        let window = StabilityWindow::new(now, names, &snapshot.buckets);
        let models = window.models.iter().map(|_| ModelDocuments::default()).collect();
        Self {
            snapshot,
            catalogue,
            window,
            summary: OnceLock::new(),
            index: OnceLock::new(),
            models,
        }
    }

    fn is_for(&self, snapshot: &Arc<Snapshot>, catalogue: &Arc<Catalogue>, now: Hour) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot) && Arc::ptr_eq(&self.catalogue, catalogue) && self.window.now == now
    }

    /// The time of the snapshot, in seconds since the Unix epoch.
    fn updated_at(&self) -> i64 {
        self.snapshot.read_at_ms.div_euclid(1000)
    }

    /// The JSON of all models.
    pub(super) fn summary(&self) -> &RenderedDocument {
        self.summary
            .get_or_init(|| RenderedDocument::json(record::summary(&self.window)))
    }

    /// The page of all models.
    pub(super) fn index(&self) -> &RenderedDocument {
        self.index
            .get_or_init(|| RenderedDocument::html(page::index(&self.window, self.updated_at())))
    }

    /// The JSON of one model.
    pub(super) fn detail(&self, key: &str) -> Option<&RenderedDocument> {
        let (model, leaves) = self.find(key)?;
        let render = || RenderedDocument::json(record::detail(model, self.updated_at()));
        Some(leaves.detail.get_or_init(render))
    }

    pub(super) fn model(&self, key: &str) -> Option<&RenderedDocument> {
        let (model, leaves) = self.find(key)?;
        let render = || RenderedDocument::html(page::model(model, self.updated_at()));
        Some(leaves.page.get_or_init(render))
    }

    /// Finds a model by its name or one of its aliases.
    fn find(&self, key: &str) -> Option<(&ModelWindow, &ModelDocuments)> {
        let place = |name: &str| {
            self.window
                .models
                .binary_search_by(|model| model.name.as_str().cmp(name))
                .ok()
        };
        let place = place(key).or_else(|| place(&self.catalogue.find_name_or_alias(key)?.name))?;
        self.window.models.get(place).zip(self.models.get(place))
    }
}

/// Holds the current edition.
#[derive(Debug, Default)]
pub(super) struct EditionCache {
    current: ArcSwapOption<Edition>,
    /// Held while an edition is made, so that concurrent requests make only one.
    making: Mutex<()>,
}

impl EditionCache {
    /// The edition for these inputs; makes it if the current one is for others.
    pub(super) fn edition(&self, snapshot: Arc<Snapshot>, catalogue: Arc<Catalogue>, now: Hour) -> Arc<Edition> {
        let fitting = || {
            let current = self.current.load_full();
            current.filter(|edition| edition.is_for(&snapshot, &catalogue, now))
        };
        if let Some(edition) = fitting() {
            return edition;
        }
        let _making = self.making.lock();
        if let Some(edition) = fitting() {
            return edition;
        }
        let edition = Arc::new(Edition::new(snapshot, catalogue, now));
        self.current.store(Some(Arc::clone(&edition)));
        edition
    }
}
