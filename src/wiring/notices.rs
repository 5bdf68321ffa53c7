//! Builds the settings of notices from the configuration.

use crate::{
    config::{notices::NoticesConfig, secret_source},
    domain::keys::secret::Secret,
    money::notices::{NoticeSettings, webhook::Webhook},
    wiring::StartError,
};

/// The settings of notices, with the secret that signs them.
pub(super) fn notice_settings(config: &NoticesConfig) -> Result<NoticeSettings, StartError> {
    let wrong = |why: String| StartError::Configuration(format!("[notices] secret: {why}"));
    let secret = notice_secret(config).map_err(wrong)?;
    let webhook = config.webhook().zip(secret);
    let webhook = webhook.map(|((url, _), secret)| Webhook::new(url.clone(), &secret, config.timeout));
    Ok(NoticeSettings {
        quota_percent: config.quota_percent,
        webhook: webhook.transpose().map_err(wrong)?,
        retry: config.retry,
    })
}

/// The secret that signs notices; `None` without a receiver.
///
/// # Errors
/// The secret is missing, or cannot sign.
pub(super) fn notice_secret(config: &NoticesConfig) -> Result<Option<Secret>, String> {
    let Some((_, reference)) = config.webhook() else {
        return Ok(None);
    };
    let secret = secret_source::read(reference)?;
    let secret = secret.ok_or_else(|| format!("{reference} is missing"))?;
    Webhook::check(&secret).map_err(|why| format!("{reference}: {why}"))?;
    Ok(Some(secret))
}
