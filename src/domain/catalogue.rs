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
