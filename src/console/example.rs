//! The models that examples request: in each protocol one that a key can use now.

use crate::{
    api::providers::ModelView,
    domain::{catalogue::Catalogue, wire::protocol::Protocol},
};

/// The models that examples request for a key that may request any: well-known, fast ones. If none of them is served, the first
/// served model is used.
const KNOWN: [&str; 3] = ["claude-haiku-4-5", "gpt-5.5", "gemini-3.8-flash"];

/// A served model, with its protocols.
type ServedModel = (String, Vec<Protocol>);

/// The model that examples request in each protocol that the key can use now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Examples {
    /// The protocol of the key's first model comes first.
    models: Vec<(Protocol, String)>,
}

impl Examples {
    /// The examples of a key that may request `allowed`, or any model if that is `None`. `is_off` tells whether a provider is
    /// switched off.
    pub(crate) fn new(catalogue: &Catalogue, is_off: impl Fn(&str) -> bool, allowed: Option<&[String]>) -> Self {
        let models = catalogue.served_models();
        let served = models.map(|model| (model.name.clone(), model.protocols_served(&is_off)));
        Self::from_served(&served.collect::<Vec<ServedModel>>(), allowed)
    }

    fn from_served(served: &[ServedModel], allowed: Option<&[String]>) -> Self {
        let names: Vec<&str> = match allowed {
            Some(allowed) => allowed.iter().map(String::as_str).collect(),
            None => KNOWN
                .into_iter()
                .chain(served.iter().map(|(name, _)| name.as_str()))
                .collect(),
        };
        let mut examples = Self::default();
        for name in names {
            let Some((_, protocols)) = served.iter().find(|(known, _)| known == name) else {
                continue;
            };
            for protocol in protocols {
                if examples.model_for(*protocol).is_none() && needs_no_quoting(*protocol, name) {
                    examples.models.push((*protocol, name.to_owned()));
                }
            }
        }
        examples
    }

    /// The examples of a key, from the admin API's list of models.
    pub(super) fn from_model_views(allowed: Option<&[String]>, models: &[ModelView]) -> Self {
        let served = models.iter().map(|model| (model.name.clone(), model.protocols.clone()));
        Self::from_served(&served.collect::<Vec<ServedModel>>(), allowed)
    }

    /// The model for a protocol; `None` if the key can use none in it.
    pub(crate) fn model_for(&self, protocol: Protocol) -> Option<&str> {
        let mut models = self.models.iter();
        let (_, model) = models.find(|(one, _)| *one == protocol)?;
        Some(model)
    }

    /// The first protocol and its model; `None` if the key can use no model.
    pub(super) fn first(&self) -> Option<(Protocol, &str)> {
        let (protocol, model) = self.models.first()?;
        Some((*protocol, model))
    }
}

/// Whether a model's name needs no quoting in an example: in a shell, in program text and, for Gemini, in a path.
fn needs_no_quoting(protocol: Protocol, name: &str) -> bool {
    let in_paths = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let elsewhere = |byte: u8| matches!(byte, b':' | b'/' | b'@') && protocol != Protocol::Gemini;
    name.bytes().all(|byte| in_paths(byte) || elsewhere(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(models: &[(&str, &[Protocol])]) -> Vec<ServedModel> {
        let one = |(name, protocols): &(&str, &[Protocol])| ((*name).to_owned(), protocols.to_vec());
        models.iter().map(one).collect()
    }

    fn names(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn each_protocol_has_the_first_model_of_the_key_that_is_served_in_it() {
        let served = served(&[
            ("both", &[Protocol::Messages, Protocol::Responses]),
            ("g", &[Protocol::Gemini]),
            ("r", &[Protocol::Responses]),
        ]);
        let examples = |allowed: &[&str]| Examples::from_served(&served, names(allowed).as_deref());
        assert_eq!(
            examples(&["gone", "r", "both"]).first(),
            Some((Protocol::Responses, "r"))
        );
        assert_eq!(
            examples(&["gone", "r", "both"]).model_for(Protocol::Messages),
            Some("both")
        );
        assert_eq!(examples(&["r"]).model_for(Protocol::Messages), None);
        assert_eq!(examples(&["g"]).first(), Some((Protocol::Gemini, "g")));
        assert_eq!(examples(&["gone"]), Examples::default());
        assert_eq!(examples(&["gone"]).first(), None);
    }

    #[test]
    fn a_key_for_all_models_is_told_of_known_ones_and_only_of_those_that_are_served() {
        let known = served(&[
            ("a", &[Protocol::Messages]),
            (KNOWN[0], &[Protocol::Messages]),
            ("b", &[Protocol::Gemini]),
        ]);
        let examples = Examples::from_served(&known, None);
        assert_eq!(examples.first(), Some((Protocol::Messages, KNOWN[0])));
        assert_eq!(examples.model_for(Protocol::Gemini), Some("b"));
        assert_eq!(examples.model_for(Protocol::Responses), None);
        let other = served(&[("a", &[Protocol::Responses])]);
        assert_eq!(
            Examples::from_served(&other, None).first(),
            Some((Protocol::Responses, "a"))
        );
    }

    #[test]
    fn a_name_that_would_have_to_be_quoted_is_in_no_example() {
        let both = [Protocol::Messages, Protocol::Gemini];
        let of = |name: &str| {
            let examples = Examples::from_served(&served(&[(name, &both)]), None);
            both.map(|protocol| examples.model_for(protocol).is_some())
        };
        assert_eq!(of("a-1.5_b"), [true, true]);
        for name in ["a/b", "a:b", "a@b"] {
            assert_eq!(of(name), [true, false], "{name}");
        }
        for name in ["a[1m]", "a b", "a'b", "a\"b", "a$b", "a\\b", "caf\u{e9}"] {
            assert_eq!(of(name), [false, false], "{name}");
        }
    }

    #[test]
    fn the_answers_of_the_admin_api_say_the_same() {
        let model = |name: &str, protocols: &[Protocol]| ModelView {
            name: name.to_owned(),
            protocols: protocols.to_vec(),
            ..ModelView::default()
        };
        let models = [
            model("m", &[Protocol::Messages]),
            model("n", &[Protocol::Responses, Protocol::Gemini]),
        ];
        let bound = Examples::from_model_views(Some(&["n".to_owned()]), &models);
        assert_eq!(
            (bound.model_for(Protocol::Messages), bound.first()),
            (None, Some((Protocol::Responses, "n")))
        );
        let any = Examples::from_model_views(None, &models);
        assert_eq!(any.model_for(Protocol::Messages), Some("m"));
    }
}
