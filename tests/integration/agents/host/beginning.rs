//! The beginning of a request, which the next request has to repeat: providers' caches keep it, and signed thinking is bound to
//! it.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::messages::without_marks;
use super::{HostTerms, Speech};

/// The parts of a request that stay or grow, as text.
pub(super) struct Beginning {
    /// What is before the conversation: among other things the model's instructions.
    head: String,
    tools: String,
    /// The conversation, without the bracket at its end.
    turns: String,
}

impl Beginning {
    /// The beginning of the request with this body. Texts are compared, but for a Messages client's own requests: in those the
    /// marks of the cache move.
    pub(super) fn read(terms: &HostTerms, text: &str, body: &Json) -> Result<Beginning, String> {
        let name = match terms.speech {
            Speech::Messages | Speech::Chat => "messages",
            Speech::Responses => "input",
            Speech::Gemini => "contents",
        };
        let open = |turns: &str| turns.strip_suffix(']').unwrap_or(turns).to_owned();
        if terms.speech == Speech::Messages && terms.is_native {
            let plain = |name: &str| without_marks(&body[name]).to_string();
            return Ok(Beginning {
                head: plain("system"),
                tools: plain("tools"),
                turns: open(&plain(name)),
            });
        }
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let member = |name: &str| members.get(name).map_or("", |value| value.get());
        let turns = member(name);
        let (head, _) = text.split_once(turns).unwrap_or_default();
        Ok(Beginning {
            head: head.to_owned(),
            tools: member("tools").to_owned(),
            turns: open(turns),
        })
    }

    /// Checks that this begins with all of `earlier`.
    pub(super) fn check_continues(&self, earlier: &Beginning) -> Result<(), String> {
        if self.head != earlier.head {
            return Err(format!("the instructions {}\ninstead of {}", self.head, earlier.head));
        }
        if self.tools != earlier.tools {
            return Err(format!("the tools {}\ninstead of {}", self.tools, earlier.tools));
        }
        if !self.turns.starts_with(&earlier.turns) {
            return Err(format!("the conversation {}\nbehind {}", self.turns, earlier.turns));
        }
        Ok(())
    }
}
