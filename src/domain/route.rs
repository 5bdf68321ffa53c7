//! stub
use std::sync::Arc;
use crate::domain::{catalogue::*, operation::Operation, protocol::Protocol};
#[derive(Debug)] pub struct Endpoint { pub https: bool, pub host: String, pub port: u16, pub path_and_query: String } impl Endpoint { pub fn authority(&self) -> String { String::new() } }
#[derive(Debug)] pub struct Route { pub model: Arc<Model>, pub provider: Arc<Provider>, pub endpoint: Endpoint, pub upstream_model: String }
pub enum RouteError { ModelUnknown, ModelNotServed { protocols: Vec<Protocol> }, CountTokensUnsupported, ProviderOff }
pub fn route(_: &Catalogue, _: Operation, _: &str) -> Result<Route, RouteError> { Err(RouteError::ModelUnknown) }
