//! `GET /v1/models`: the models that the caller's key may use, in the shape of the protocol that asks.

use crate::domain::{
    catalogue::{Catalogue, Model},
    key::KeyRecord,
    protocol::{ListedModel, Protocol, model_entry, models_list},
    refusal::{Refusal, Reply},
};

/// The list, or one model of it.
pub fn reply(
    catalogue: &Catalogue,
    is_off: impl Fn(&str) -> bool,
    key: &KeyRecord,
    shape: Protocol,
    wanted: Option<&str>,
) -> Result<Reply, Refusal> {
    // The Responses shape is what generic clients read, so it lists everything; the others only what they can use.
    let is_switched_off = |model: &Model| {
        let mut on = model.providers.iter().filter(|provider| provider.is_on());
        on.all(|provider| is_off(&provider.name))
    };
    let fits = |model: &Model| shape == Protocol::Responses || model.serves(shape);
    let usable = catalogue
        .models()
        .filter(|model| fits(model) && !is_switched_off(model) && key.allows_model(&model.name));
    let listed: Vec<ListedModel> = usable
        .map(|model| ListedModel {
            id: model.name.clone(),
            display_name: model.display_name.clone(),
            created_unix: model.created_unix,
            context_tokens: model.context_tokens,
            output_tokens: model.output_tokens,
            owner: model.owner().to_owned(),
        })
        .collect();
    let body = match wanted {
        None => models_list(shape, &listed),
        Some(name) => match listed.iter().find(|model| model.id == name) {
            Some(model) => model_entry(shape, model),
            None => return Err(Refusal::ModelUnknown { model: name.to_owned() }),
        },
    };
    Ok(Reply {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body,
    })
}
