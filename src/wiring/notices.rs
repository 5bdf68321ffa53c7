//! What tells that a quota or a balance is about to be over, from its configuration.

use crate::{
    config::{notices::NoticesConfig, secret_source},
    domain::keys::secret::Secret,
    money::notices::{NoticeSettings, webhook::Webhook},
    wiring::StartError,
};

/// The settings, with the secret that messages are signed with.
pub(super) fn settings(config: &NoticesConfig) -> Result<NoticeSettings, StartError> {
    let wrong = |why: String| StartError::Configuration(format!("[notices] secret: {why}"));
    let secret = secret(config).map_err(wrong)?;
    let webhook = config.webhook().zip(secret);
    let webhook = webhook.map(|((url, _), secret)| Webhook::new(url.clone(), &secret, config.timeout));
    Ok(NoticeSettings {
        quota_percent: config.quota_percent,
        webhook: webhook.transpose().map_err(wrong)?,
        retry: config.retry,
    })
}

/// The secret of the receiver; `None` without one.
///
/// # Errors
/// It is not where the configuration says, or is none to sign with.
pub(super) fn secret(config: &NoticesConfig) -> Result<Option<Secret>, String> {
    let Some((_, reference)) = config.webhook() else {
        return Ok(None);
    };
    let secret = secret_source::read(reference)?;
    let secret = secret.ok_or_else(|| format!("{reference} is not there"))?;
    Webhook::check(&secret).map_err(|why| format!("{reference}: {why}"))?;
    Ok(Some(secret))
}
