<<<<<<< HEAD
//! stub
use std::{sync::Arc, time::Duration, collections::BTreeMap};
use http::HeaderName;
use crate::domain::{rules::*, secret::Secret, protocol::Protocol, strict_toml::FileError};
#[derive(Debug)] pub struct Catalogue;
#[derive(Debug)] pub struct Warning; impl std::fmt::Display for Warning { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
#[derive(Debug)] pub struct Timeouts { pub connect: Option<Duration>, pub first_byte: Option<Duration>, pub first_byte_unary: Option<Duration>, pub idle: Option<Duration>, pub total: Option<Duration> }
#[derive(Debug)] pub struct Auth { pub header: HeaderName, pub scheme: &'static str, pub secret: Secret }
#[derive(Debug)] pub struct Provider { pub name: String, pub body: BodyRules, pub headers: HeadEdits, pub on_client_gone: OnClientGone, pub timeouts: Timeouts, pub auth: Option<Auth>, pub errors: ErrorShape }
impl Provider { pub fn is_on(&self) -> bool { true } pub fn hosts(&self) -> Vec<(String, u16)> { vec![] } }
#[derive(Debug)] pub struct Model { pub name: String, pub display_name: String, pub created_unix: i64, pub context_tokens: Option<u64>, pub output_tokens: Option<u64> }
impl Model { pub fn serves(&self, _: Protocol) -> bool { true } pub fn owner(&self) -> &str { "" } }
#[derive(Debug, Default, Clone, PartialEq)] pub struct CatalogueSettings { pub overrides: BTreeMap<String, u8> }
#[derive(Debug, Clone, PartialEq, Eq)] pub enum SecretRef { Env(String) }
impl std::fmt::Display for SecretRef { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
impl Catalogue { pub fn build(_: &[RuleFile], _: &CatalogueSettings, _: &dyn Fn(&SecretRef) -> Result<Option<Secret>, String>) -> Result<(Catalogue, Vec<Warning>), Vec<FileError>> { Ok((Catalogue, vec![])) }
 pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> { [].iter() } pub fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> { [].iter() } }
=======
//! The models weir serves and the providers behind them.

use std::collections::BTreeMap;

pub mod secret_ref;

pub use crate::domain::rules::RawModel;
pub use secret_ref::{SecretRef, SecretRefError};

/// What weir.toml says about the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogueSettings {
    /// `[provider.NAME]`: changes to shipped and own provider files.
    pub overrides: BTreeMap<String, ProviderOverride>,
    /// `[[model]]`: models added, or put in the place of those with the same name.
    pub models: Vec<RawModel>,
}

/// `[provider.NAME]` of weir.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderOverride {
    /// `scheme://host[:port]` in the place of that of every endpoint; the endpoints' paths stay.
    pub base_url: Option<String>,
    /// Another place of the secret.
    pub secret: Option<SecretRef>,
    /// `false` switches the provider off.
    pub enabled: Option<bool>,
}
>>>>>>> a1
