//! `GET /v1/models`: the models that the caller's key may use, in the form of the client's protocol.

use crate::domain::{
    catalogue::{Catalogue, Model},
    faults::refusal::{Refusal, RefusalReply},
    keys::key::KeyRecord,
    wire::protocol::{ListedModel, Protocol, model_entry, model_page::requested_page, models_list},
};

/// The requested page of the list, or the entry of the `wanted` model.
pub(crate) fn reply(
    catalogue: &Catalogue,
    is_off: impl Fn(&str) -> bool,
    key: &KeyRecord,
    shape: Protocol,
    wanted: Option<&str>,
    query: Option<&str>,
) -> Result<RefusalReply, Refusal> {
    // Generic clients read the Responses shape, so it lists all models; the others list only models of their protocol.
    let is_switched_off = |model: &Model| {
        let mut on = model.providers.iter().filter(|provider| provider.is_on());
        on.all(|provider| is_off(&provider.name))
    };
    let fits = |model: &Model| shape == Protocol::Responses || model.serves(shape);
    let usable = catalogue
        .served_models()
        .filter(|model| fits(model) && !is_switched_off(model) && key.allows_model(&model.name));
    let listed: Vec<ListedModel> = usable
        .map(|model| ListedModel {
            id: model.name.clone(),
            display_name: model.display_name.clone(),
            created_unix: model.created_unix,
            context_tokens: model.context_tokens,
            output_tokens: model.output_tokens,
            owner: model.preferred_provider().to_owned(),
        })
        .collect();
    let body = match wanted {
        None => {
            let names: Vec<&str> = listed.iter().map(|model| model.id.as_str()).collect();
            let page = requested_page(shape, query, &names).map_err(|reason| Refusal::QueryInvalid { reason })?;
            let models = listed.get(page.range).unwrap_or_default();
            models_list(shape, models, page.has_more)
        }
        Some(name) => match listed.iter().find(|model| model.id == name) {
            Some(model) => model_entry(shape, model),
            None => return Err(Refusal::ModelUnknown { model: name.to_owned() }),
        },
    };
    Ok(RefusalReply {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body,
    })
}
