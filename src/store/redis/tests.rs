//! Tests of the Redis store, against a real server.

use super::test_server::TestServer;
use crate::store::contract::{Fixture, suite};

async fn open() -> Option<Fixture> {
    let server = TestServer::start().await?;
    let joined = server.join("weir").await;
    Some(Fixture {
        store: joined.store.clone(),
        kept: Box::new((joined, server)),
    })
}

suite!(open);
