//! Compiles a provider file: checks it completely and builds the values with which weir serves requests. A file that compiles
//! causes no errors later.

mod bodies;
mod edits;
mod resilience;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::HeaderName;
use toml::Spanned;

use crate::domain::{
    keys::secret::Secret,
    rules::{
        RuleFile,
        apply::json_string,
        body::{BodyPathStep, JsonNumber, NumberBound, NumberRange, PATH_STEPS_MAX},
        endpoint::{EndpointTemplate, EndpointTemplates},
        provider::{Auth, Credential, Provider, ProviderTimeouts},
        raw::{AuthStyle, RawAuth, RawEndpoints, RawModel, RawProvider, RawTimeouts},
    },
    strict_toml::{Faults, FileError, parse_all},
    wire::{
        operation::{self, Operation, UpstreamOperation},
        protocol::{Protocol, provider_error::CREDENTIAL_CHARS_MIN},
    },
};

pub(crate) use self::resilience::{CredentialSource, ONLY_CREDENTIAL};

/// The maximum length of a provider's name, in bytes.
pub(crate) const PROVIDER_NAME_BYTES_MAX: usize = 32;

/// A compiled provider file. It contains the provider, the sources of the provider's secrets, and the provider's models. The
/// secrets themselves are added later.
#[derive(Debug)]
pub struct CompiledProvider {
    /// The provider. It has no credentials until [`CompiledProvider::authorize`] adds them.
    pub provider: Provider,
    /// The sources of the provider's secrets; never empty.
    pub secrets: Vec<CredentialSource>,
    /// The provider's models, each with the line of its definition in the file.
    pub models: Vec<(usize, RawModel)>,
}

impl CompiledProvider {
    /// Returns the model of the file that serves requests for the name `asked`, with the line of the model's definition. It is
    /// the model that has `asked` as its name or as an alias. If there is no such model, `asked` is looked up again without its
    /// context-window mark and its date. If this finds no model either, the result is the fallback for the family of the name.
    pub fn model_for(&self, protocol: Protocol, asked: &str) -> Option<&(usize, RawModel)> {
        let named = |name: &str| self.models.iter().find(|(_, model)| model.name == name);
        let aliased = |name: &str| {
            let mut models = self.models.iter();
            models.find(|(_, model)| model.aliases.iter().any(|alias| alias == name))
        };
        let listed = operation::name_candidates(asked).find_map(|name| named(name).or_else(|| aliased(name)));
        listed.or_else(|| {
            let fallback = self.provider.fallback.as_ref()?;
            fallback.applies_to(protocol, asked).then(|| named(&fallback.model))?
        })
    }

    /// Adds a credential with this secret to the provider. This turns the provider on.
    ///
    /// # Errors
    /// The secret cannot be sent in a header, or is too short to be masked. The error does not contain the secret.
    pub fn authorize(&mut self, place: &CredentialSource, secret: Secret) -> Result<(), String> {
        let text = secret.expose();
        let unsendable = || {
            "the secret contains spaces, line breaks or other characters that a credential cannot contain".to_owned()
        };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(unsendable());
        }
        if text.len() < CREDENTIAL_CHARS_MIN {
            return Err(format!(
                "the secret has fewer than {CREDENTIAL_CHARS_MIN} characters, so weir could not mask it where the provider repeats \
                 it; give a longer secret"
            ));
        }
        let (name, scheme) = (place.name.clone(), self.provider.auth.scheme);
        let credential = Credential::new(name, place.weight, scheme, secret).map_err(|_| unsendable())?;
        self.provider.credentials.push(credential);
        Ok(())
    }
}

/// Parses and compiles one provider file.
///
/// # Errors
/// All faults found, sorted by line.
pub fn compile(file: &RuleFile) -> Result<CompiledProvider, Vec<FileError>> {
    let parsed = parse_all::<RawProvider>(&file.name, &file.text);
    let (raw, mut faults) = Faults::from_parsed(&file.name, &file.text, parsed)?;
    check_name(&raw.name, &mut faults);
    let way = auth_header(&raw.auth, &mut faults);
    let endpoints = endpoints(&raw.endpoints, &mut faults);
    let timeouts = timeouts(&raw.timeouts, &mut faults);
    let headers = edits::head_edits(&raw.headers, way.as_ref().map(|(header, _)| header), &mut faults);
    let query = edits::query_edits(&raw.query, &mut faults);
    let body = bodies::body(&raw.body, &mut faults);
    let response = bodies::response(&raw.response, &mut faults);
    let mut secrets = resilience::secrets(&raw.auth, &raw.credential, &mut faults);
    for place in &mut secrets {
        place.secret = place.secret.relative_to(&file.name);
    }
    let origins = resilience::origins(&raw.origin, &mut faults);
    let retry = resilience::retry(&raw.retry, &mut faults);
    let refused_statuses = resilience::refused_statuses(&raw.auth, &mut faults);
    let error_rules = resilience::error_rules(&raw.error, &mut faults);
    let fallback = resilience::fallback(raw.fallback.as_ref(), &raw.model, &mut faults);
    let models = models(raw.model, &mut faults);
    let name = raw.name.into_inner();
    match way {
        Some((header, scheme)) if faults.is_empty() => Ok(CompiledProvider {
            provider: Provider {
                missing_secrets: Vec::new(),
                display_name: raw.display_name.unwrap_or_else(|| name.clone()),
                name,
                auth: Auth {
                    header,
                    scheme,
                    refused_statuses,
                },
                credentials: Vec::new(),
                endpoints,
                origins,
                timeouts,
                retry,
                errors: raw.errors,
                refusals: raw.refusals,
                error_rules,
                stateless: raw.stateless,
                fallback,
                on_client_gone: raw.on_client_gone,
                headers,
                query,
                body,
                response,
                chat: raw.chat.traits(),
            },
            secrets,
            models,
        }),
        Some(_) | None => Err(faults.into_errors()),
    }
}

fn check_name(name: &Spanned<String>, faults: &mut Faults<'_>) {
    let text = name.get_ref();
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if text.is_empty() || text.len() > PROVIDER_NAME_BYTES_MAX || !text.bytes().all(allowed) {
        faults.add_at(
            name,
            "name",
            "key `name`: a provider's name is 1 to 32 characters of a-z, 0-9, - and _",
        );
    }
}

fn auth_header(auth: &RawAuth, faults: &mut Faults<'_>) -> Option<(HeaderName, &'static str)> {
    match (auth.style, &auth.header) {
        (Some(AuthStyle::XApiKey), None) => Some((HeaderName::from_static("x-api-key"), "")),
        (Some(AuthStyle::Bearer), None) => Some((http::header::AUTHORIZATION, "Bearer ")),
        (Some(AuthStyle::XGoogApiKey), None) => Some((HeaderName::from_static("x-goog-api-key"), "")),
        (None, Some(header)) => match HeaderName::from_bytes(header.get_ref().as_bytes()) {
            Ok(name) if !edits::is_framing(&name) => Some((name, "")),
            Ok(_) | Err(_) => {
                faults.add_at(
                    header,
                    "header",
                    "key `auth.header`: expected the name of a header that can carry a key",
                );
                None
            }
        },
        (Some(_), Some(header)) => {
            faults.add_at(
                header,
                "header",
                "key `auth.header`: give either `style` or `header`, not both",
            );
            None
        }
        (None, None) => {
            faults.add_for_file(
                "key `auth.style` is missing: give x-api-key, bearer or x-goog-api-key, or `header = \"NAME\"`",
            );
            None
        }
    }
}

fn endpoints(raw: &RawEndpoints, faults: &mut Faults<'_>) -> EndpointTemplates {
    let responses = raw.responses.as_ref();
    let responses_url = responses.map(|endpoint| Spanned::new(endpoint.span(), endpoint.get_ref().url.clone()));
    let has_websocket = responses.is_some_and(|endpoint| endpoint.get_ref().websocket);
    let given = [
        (
            UpstreamOperation::ChatCompletions,
            "chat_completions",
            &raw.chat_completions,
        ),
        (Operation::Messages.into(), "messages", &raw.messages),
        (Operation::CountTokens.into(), "count_tokens", &raw.count_tokens),
        (Operation::Responses.into(), "responses", &responses_url),
        (
            Operation::GenerateContent.into(),
            "generate_content",
            &raw.generate_content,
        ),
        (
            Operation::StreamGenerateContent.into(),
            "stream_generate_content",
            &raw.stream_generate_content,
        ),
        (
            Operation::GeminiCountTokens.into(),
            "gemini_count_tokens",
            &raw.gemini_count_tokens,
        ),
    ];
    let mut served = Vec::new();
    for (operation, key, url) in given {
        let Some(url) = url else { continue };
        match EndpointTemplate::parse(url.get_ref()) {
            Ok(mut template) => {
                template.has_websocket = has_websocket && operation == Operation::Responses.into();
                served.push((operation, template));
            }
            Err(error) => faults.add_at(url, key, format!("key `endpoints.{key}`: {error}")),
        }
    }
    if served.is_empty() && faults.is_empty() {
        faults.add_for_file("[endpoints] is empty: give a URL for at least one operation");
    }
    EndpointTemplates(served)
}

fn timeouts(raw: &RawTimeouts, faults: &mut Faults<'_>) -> ProviderTimeouts {
    let mut limit = |value: &Option<Spanned<u32>>, key: &str, unit: fn(u64) -> Duration| {
        let value = value.as_ref()?;
        if *value.get_ref() == 0 {
            faults.add_at(
                value,
                key,
                format!("key `timeouts.{key}`: give at least 1, or leave the key out to use that of [upstream]"),
            );
            return None;
        }
        Some(unit(u64::from(*value.get_ref())))
    };
    ProviderTimeouts {
        connect: limit(&raw.connect_ms, "connect_ms", Duration::from_millis),
        first_byte: limit(&raw.first_byte_seconds, "first_byte_seconds", Duration::from_secs),
        first_byte_unary: limit(
            &raw.first_byte_unary_seconds,
            "first_byte_unary_seconds",
            Duration::from_secs,
        ),
        idle: limit(&raw.idle_seconds, "idle_seconds", Duration::from_secs),
        total: limit(&raw.total_seconds, "total_seconds", Duration::from_secs),
    }
}

fn models(raw: Vec<Spanned<RawModel>>, faults: &mut Faults<'_>) -> Vec<(usize, RawModel)> {
    let mut models = Vec::with_capacity(raw.len());
    for model in raw {
        if !model.get_ref().providers.is_empty() {
            faults.add_at(
                &model,
                "providers",
                "key `providers` belongs in weir.toml: the models of a provider file are those of its provider",
            );
        }
        let line = faults.line(&model);
        models.push((line, model.into_inner()));
    }
    models
}

/// Parses the path of an edit: names joined by dots. `[]` after the name of an array stands for each element of the array. For
/// nested arrays, there is one `[]` for each level. `None` if the path is invalid or too long.
fn path_steps(text: &str) -> Option<Vec<BodyPathStep>> {
    let mut path = Vec::new();
    for part in text.split('.') {
        let name = part.trim_end_matches("[]");
        if name.is_empty() || name.contains(['[', ']']) {
            return None;
        }
        path.push(BodyPathStep::Member(name.to_owned()));
        path.extend(std::iter::repeat_n(BodyPathStep::Each, (part.len() - name.len()) / 2));
    }
    (path.len() <= PATH_STEPS_MAX).then_some(path)
}

/// Parses a path that contains only names, without `[]`. `None` if the path is invalid or too long.
fn path_members(text: &str) -> Option<Vec<String>> {
    let name = |segment| match segment {
        BodyPathStep::Member(name) => Some(name),
        BodyPathStep::Each => None,
    };
    path_steps(text)?.into_iter().map(name).collect()
}

/// Returns the range from `min` to `max`. At least one of them is required.
fn bounds(min: Option<&toml::Value>, max: Option<&toml::Value>) -> Result<NumberRange, String> {
    let min = min.map(bound).transpose()?;
    let max = max.map(bound).transpose()?;
    match (&min, &max) {
        (None, None) => Err("keys `min` and `max` are missing: `clamp` needs one of them".to_owned()),
        (Some(min), Some(max)) if max.value.is_below(min.value) => Err("key `min` is greater than `max`".to_owned()),
        (Some(_), _) | (None, Some(_)) => Ok(NumberRange { min, max }),
    }
}

fn bound(value: &toml::Value) -> Result<NumberBound, String> {
    let text = match value {
        toml::Value::Integer(_) | toml::Value::Float(_) => json_text(value)?,
        _ => return Err("keys `min` and `max` must be numbers".to_owned()),
    };
    let value = JsonNumber::read(&text).ok_or("keys `min` and `max` must be numbers")?;
    Ok(NumberBound { text, value })
}

/// Returns a TOML value as JSON text.
fn json_text(value: &toml::Value) -> Result<String, String> {
    let unfit = || "dates and non-finite numbers cannot be written as JSON".to_owned();
    match value {
        toml::Value::String(text) => Ok(json_string(text)),
        toml::Value::Integer(integer) => Ok(integer.to_string()),
        toml::Value::Float(float) => serde_json::Number::from_f64(*float)
            .map(|number| number.to_string())
            .ok_or_else(unfit),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        toml::Value::Datetime(_) => Err(unfit()),
        toml::Value::Array(items) => {
            let items: Result<Vec<String>, String> = items.iter().map(json_text).collect();
            Ok(format!("[{}]", items?.join(",")))
        }
        toml::Value::Table(table) => {
            let member = |(name, value): (&String, &toml::Value)| {
                Ok::<String, String>(format!("{}:{}", json_string(name), json_text(value)?))
            };
            let members: Result<Vec<String>, String> = table.iter().map(member).collect();
            Ok(format!("{{{}}}", members?.join(",")))
        }
    }
}
