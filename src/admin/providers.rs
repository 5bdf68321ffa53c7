//! Providers and their models in the admin API: list, switch off, switch on.

use std::sync::Arc;

use serde::Serialize;

use super::{Admin, ask::AdminHandler, author::Author};
use crate::api::{
    error::AdminError,
    providers::{
        DisableProvider, EnableProvider, ListModels, ListProviders, ModelList, ProviderList, SwitchedProvider,
    },
};

impl AdminHandler for ListModels {
    async fn answer(self, admin: &Admin, _: Author) -> Result<ModelList, AdminError> {
        let models = admin.providers.models();
        Ok(ModelList { models })
    }
}

impl AdminHandler for ListProviders {
    async fn answer(self, admin: &Admin, _: Author) -> Result<ProviderList, AdminError> {
        let providers = admin.providers.providers();
        Ok(ProviderList { providers })
    }
}

impl AdminHandler for EnableProvider {
    async fn answer(self, admin: &Admin, author: Author) -> Result<SwitchedProvider, AdminError> {
        switch(admin, author, self.name, true).await
    }
}

impl AdminHandler for DisableProvider {
    async fn answer(self, admin: &Admin, author: Author) -> Result<SwitchedProvider, AdminError> {
        switch(admin, author, self.name, false).await
    }
}

/// The values of a switch in the audit record.
#[derive(Serialize)]
struct AuditedSwitch<'a> {
    provider: &'a str,
}

async fn switch(admin: &Admin, author: Author, name: String, on: bool) -> Result<SwitchedProvider, AdminError> {
    let known = admin.providers.providers();
    // A provider that is no longer configured can still be switched on, or its switch would remain forever.
    if !on && known.iter().all(|provider| provider.name != name) {
        let names: Vec<&str> = known.iter().map(|provider| provider.name.as_str()).collect();
        return Err(AdminError::not_found(format!(
            "this provider does not exist; the providers are {}",
            names.join(", ")
        )));
    }
    let of_name = known.iter().find(|provider| provider.name == name);
    if on && let Some(why) = of_name.and_then(|provider| provider.why_off.as_deref()) {
        return Err(AdminError::invalid(format!(
            "{name} is off by its configuration, which the switch cannot change: {why}"
        )));
    }
    let operation = if on { "provider.enable" } else { "provider.disable" };
    admin
        .audit(author.peer, operation, "", &AuditedSwitch { provider: &name })
        .await?;
    let providers = Arc::clone(&admin.providers);
    let changing = {
        let name = name.clone();
        tokio::task::spawn_blocking(move || providers.switch(&name, on))
    };
    let changed = changing.await.map_err(|error| AdminError::failed(error.to_string()))?;
    let changed = changed.map_err(|error| AdminError::failed(format!("the switch cannot be saved: {error}")))?;
    Ok(SwitchedProvider {
        provider: name,
        enabled: on,
        changed,
    })
}
