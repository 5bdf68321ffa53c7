//! stub
use std::{sync::Arc, time::{Duration, Instant}};
use crate::{store::*, domain::{key::*, secret::*}};
#[derive(Debug)] pub struct KeyCache;
pub struct KeyCacheSettings { pub lifetime: Duration, pub negative_lifetime: Duration, pub entries_max: usize, pub poll: Duration, pub flush_used: Duration }
impl KeyCache { pub fn new(_: Arc<dyn KeyStore>, _: KeyCacheSettings) -> Arc<Self> { Arc::new(Self) }
 pub async fn find(&self, _: &KeyDigest, _: Instant) -> Result<Option<Arc<KeyRecord>>, StoreError> { Ok(None) } pub fn touch(&self, _: &KeyId, _: i64) {} pub async fn run(self: Arc<Self>, _: tokio::sync::watch::Receiver<bool>) {} pub fn store_is_reachable(&self) -> bool { true } }
