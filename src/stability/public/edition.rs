//! All answers of one snapshot, rendered once: readers cost neither store calls nor rendering.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::{
    domain::{
        catalogue::Catalogue,
        faults::stability::{Hour, ModelWindow, Window},
    },
    stability::{
        Snapshot,
        public::{document::Document, page, record},
    },
};

/// The answers of one snapshot, one catalogue and one hour.
#[derive(Debug)]
pub(super) struct Edition {
    snapshot: Arc<Snapshot>,
    catalogue: Arc<Catalogue>,
    window: Window,
    summary: OnceLock<Document>,
    index: OnceLock<Document>,
    /// In the order of the window's models.
    models: Vec<Leaves>,
}

/// What is said of one model.
#[derive(Debug, Default)]
struct Leaves {
    detail: OnceLock<Document>,
    page: OnceLock<Document>,
}

impl Edition {
    /// The models that are on, and those that served in the window.
    fn new(snapshot: Arc<Snapshot>, catalogue: Arc<Catalogue>, now: Hour) -> Self {
        let names = catalogue.models().map(|model| model.name.as_str());
        let window = Window::new(now, names, &snapshot.buckets);
        let models = window.models.iter().map(|_| Leaves::default()).collect();
        Self {
            snapshot,
            catalogue,
            window,
            summary: OnceLock::new(),
            index: OnceLock::new(),
            models,
        }
    }

    fn is_of(&self, snapshot: &Arc<Snapshot>, catalogue: &Arc<Catalogue>, now: Hour) -> bool {
        Arc::ptr_eq(&self.snapshot, snapshot) && Arc::ptr_eq(&self.catalogue, catalogue) && self.window.now == now
    }

    /// In seconds since the epoch.
    fn updated_at(&self) -> i64 {
        self.snapshot.read_at_ms.div_euclid(1000)
    }

    /// All models as JSON.
    pub(super) fn summary(&self) -> &Document {
        self.summary
            .get_or_init(|| Document::json(record::summary(&self.window)))
    }

    /// All models as a page.
    pub(super) fn index(&self) -> &Document {
        self.index
            .get_or_init(|| Document::html(page::index(&self.window, self.updated_at())))
    }

    /// One model as JSON.
    pub(super) fn detail(&self, key: &str) -> Option<&Document> {
        let (model, leaves) = self.find(key)?;
        let render = || Document::json(record::detail(model, self.updated_at()));
        Some(leaves.detail.get_or_init(render))
    }

    pub(super) fn model(&self, key: &str) -> Option<&Document> {
        let (model, leaves) = self.find(key)?;
        let render = || Document::html(page::model(model, self.updated_at()));
        Some(leaves.page.get_or_init(render))
    }

    /// By its name, or one of its aliases.
    fn find(&self, key: &str) -> Option<(&ModelWindow, &Leaves)> {
        let place = |name: &str| {
            self.window
                .models
                .binary_search_by(|model| model.name.as_str().cmp(name))
                .ok()
        };
        let place = place(key).or_else(|| place(&self.catalogue.named(key)?.name))?;
        self.window.models.get(place).zip(self.models.get(place))
    }
}

/// The edition that is given out.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    current: ArcSwapOption<Edition>,
    /// Held while the next one is made, so that a crowd makes one.
    making: Mutex<()>,
}

impl Shelf {
    /// The edition of these; made if the one at hand is another.
    pub(super) fn edition(&self, snapshot: Arc<Snapshot>, catalogue: Arc<Catalogue>, now: Hour) -> Arc<Edition> {
        let fitting = || {
            let current = self.current.load_full();
            current.filter(|edition| edition.is_of(&snapshot, &catalogue, now))
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
