//! Tests of the embedded store and of its file.

use super::EmbeddedStore;
use crate::store::contract::{Fixture, suite};
use std::sync::Arc;

async fn open() -> Option<Fixture> {
    let folder = tempfile::tempdir().unwrap();
    Some(Fixture {
        store: Arc::new(EmbeddedStore::open(folder.path()).unwrap()),
        kept: Box::new(folder),
    })
}

suite!(open);
