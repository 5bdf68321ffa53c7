//! stub
use http::{HeaderName, HeaderValue};
use crate::domain::{operation::Operation, json_scan::Scan};
#[derive(Debug)] pub struct HeadEdits { pub remove: Vec<HeaderName>, pub rename: Vec<(HeaderName, HeaderName)>, pub set: Vec<(HeaderName, HeaderValue)>, pub default: Vec<(HeaderName, HeaderValue)> }
#[derive(Debug)] pub struct BodyRules;
#[derive(Debug, Clone, Copy, PartialEq, Eq)] pub enum ClientGoneAction { Abort, Finish }
#[derive(Debug)] pub struct OnClientGone { pub stream: ClientGoneAction, pub unary: ClientGoneAction }
#[derive(Debug, Clone, Copy, PartialEq, Eq)] pub enum ErrorShape { Native, Reshape }
#[derive(Debug, thiserror::Error)] #[error("x")] pub struct EditError;
pub fn edit_body(_: &BodyRules, _: Operation, _: &str, _: &[u8], _: &Scan) -> Result<Option<Vec<u8>>, EditError> { Err(EditError) }
pub struct RuleFile { pub name: String, pub text: String }
pub fn shipped() -> Vec<RuleFile> { vec![] }
