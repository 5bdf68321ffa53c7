//! Reads the options of a Messages request.

use std::borrow::Cow;

use crate::domain::{
    translation::{
        conversation::{AnswerFormat, ReasoningEffort, ReasoningRequest, placed},
        losses::Untranslatable,
        members::{MemberReader, missing},
        read::messages::{MCP_TOOLS, MessagesRequestReader, ThinkingSetting},
    },
    wire::UpstreamProtocol,
};

/// The options that are preferences or annotations, or that concern storage or billing at a provider. They are dropped.
const DROPPED: [&str; 14] = [
    "cache_control",
    "context_management",
    "diagnostics",
    "betas",
    "safeguards",
    "fallbacks",
    "fallback_credit_token",
    "service_tier",
    "speed",
    "billing_policy",
    "user_profile_id",
    "workspace_id",
    "anthropic_beta",
    "anthropic_version",
];

/// The options that continue state at another provider, or that require a guarantee which the provider of the requested model
/// cannot give.
const REFUSED: [(&str, &str); 4] = [
    (
        "container",
        "this model's provider cannot use containers and skills kept elsewhere; leave this out",
    ),
    (
        "thread",
        "this model's provider does not keep conversations; send the whole conversation in `messages`",
    ),
    (
        "inference_geo",
        "this model's provider does not choose the region of a request; leave this out",
    ),
    (
        "compaction",
        "compaction by the provider is not available for translated models; compact locally",
    ),
];

/// The path of the member `thinking`.
const THINKING: &str = "thinking";
/// The path of the member with the client's user and session.
const USER_ID: &str = "metadata.user_id";
/// The maximum length of a cache key that providers accept, in bytes.
const CACHE_KEY_BYTES_MAX: usize = 64;

impl<'a> MessagesRequestReader<'a, '_> {
    /// Takes all options of a request except the tools and the tool choice.
    ///
    /// # Errors
    /// The request has an option that needs state stored at a provider, or an option that changes the client's answer and cannot be carried over.
    pub(super) fn read_options(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        for (name, reason) in REFUSED {
            object.refuse(name, reason)?;
        }
        if object.array("mcp_servers")?.is_some_and(|servers| !servers.is_empty()) {
            return Err(Untranslatable::new("mcp_servers", MCP_TOOLS));
        }
        object.ignore(&["model"]);
        let options = &mut self.conversation.options;
        options.stream = object.flag("stream")?.unwrap_or(false);
        options.max_tokens = match object.count("max_tokens")? {
            None => return Err(missing(object, "max_tokens")),
            Some(0) => {
                let reason = "0 only fills the prompt cache, which this model's provider cannot do; send at least 1";
                return Err(Untranslatable::new("max_tokens", reason));
            }
            count => placed("max_tokens", count),
        };
        options.temperature = placed("temperature", object.number("temperature")?);
        options.top_p = placed("top_p", object.number("top_p")?);
        options.top_k = placed("top_k", object.number("top_k")?);
        let stops = object.texts("stop_sequences")?.filter(|stops| !stops.is_empty());
        options.stop = placed("stop_sequences", stops);
        self.read_thinking(object)?;
        self.read_format(object, "output_format", "output_format")?;
        if let Some(mut config) = object.object("output_config")? {
            self.read_effort(&mut config)?;
            self.read_format(&mut config, "format", "output_config.format")?;
            config.drop_members(&["task_budget"], self.losses);
            config.finish_options(self.losses);
        }
        self.read_metadata(object)?;
        object.drop_members(&DROPPED, self.losses);
        Ok(())
    }

    /// Takes `thinking`.
    fn read_thinking(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(mut thinking) = object.object(THINKING)? else {
            return Ok(());
        };
        self.thinking = match &*thinking.required_text("type")? {
            "adaptive" => ThinkingSetting::Adaptive,
            "disabled" => ThinkingSetting::Disabled,
            "enabled" => match thinking.count("budget_tokens")? {
                Some(budget) => ThinkingSetting::Budget(budget),
                None => return Err(missing(&thinking, "budget_tokens")),
            },
            "between_tools" => {
                self.losses.dropped(THINKING);
                ThinkingSetting::Unset
            }
            _ => {
                self.losses.unknown(thinking.path_of("type"));
                ThinkingSetting::Unset
            }
        };
        let shows = match thinking.text("display")?.as_deref() {
            None => None,
            Some("omitted") => Some(false),
            Some("summarized" | "updates") => Some(true),
            Some(_) => {
                self.losses.unknown(thinking.path_of("display"));
                None
            }
        };
        self.conversation.options.shows_reasoning = match self.thinking {
            ThinkingSetting::Disabled => Some(false),
            ThinkingSetting::Unset | ThinkingSetting::Adaptive | ThinkingSetting::Budget(_) => shows,
        };
        thinking.drop_members(&["block_binding"], self.losses);
        thinking.finish_options(self.losses);
        Ok(())
    }

    /// Takes the `effort` of an `output_config`. The last effort of a request counts. Returns whether there is an effort that
    /// weir knows.
    ///
    /// # Errors
    /// The effort is not a string.
    pub(super) fn read_effort(&mut self, config: &mut MemberReader<'a>) -> Result<bool, Untranslatable> {
        let Some(word) = config.text("effort")? else {
            return Ok(false);
        };
        let path = config.path_of("effort");
        let Some(effort) = ReasoningEffort::from_word(&word) else {
            self.losses.unknown(path);
            return Ok(false);
        };
        let earlier = std::mem::replace(&mut self.effort, placed(path, Some(effort)));
        if let Some(earlier) = earlier {
            self.losses.adapted(earlier.path);
        }
        Ok(true)
    }

    /// Sets the amount of reasoning. All messages must have been read, because system messages can state an effort.
    pub(super) fn set_reasoning(&mut self) {
        let (path, request) = match (self.thinking, self.effort.take()) {
            (ThinkingSetting::Unset, None) => return,
            (ThinkingSetting::Unset | ThinkingSetting::Adaptive, Some(effort)) => {
                (effort.path, ReasoningRequest::by_effort(effort.value))
            }
            // The protocol's default effort is high.
            (ThinkingSetting::Adaptive, None) => (THINKING.into(), ReasoningRequest::by_effort(ReasoningEffort::High)),
            (ThinkingSetting::Disabled, effort) => {
                if let Some(effort) = effort {
                    self.losses.dropped(effort.path);
                }
                (THINKING.into(), ReasoningRequest::by_effort(ReasoningEffort::Off))
            }
            (ThinkingSetting::Budget(budget), None) => (THINKING.into(), ReasoningRequest::by_budget(budget)),
            (ThinkingSetting::Budget(budget), Some(effort)) => {
                let request = ReasoningRequest {
                    effort: effort.value,
                    budget: Some(budget),
                };
                (THINKING.into(), request)
            }
        };
        self.conversation.options.reasoning = placed(path, Some(request));
    }

    /// Takes the member `name`, which states the format of the answer's text.
    fn read_format(
        &mut self,
        object: &mut MemberReader<'a>,
        name: &str,
        path: &'static str,
    ) -> Result<(), Untranslatable> {
        let Some(mut format) = object.object(name)? else {
            return Ok(());
        };
        if format.required_text("type")? != "json_schema" {
            let reason = "weir does not know this answer format; use `json_schema`";
            return self.losses.refused_in_strict(path, reason);
        }
        let Some(schema) = format.object_text("schema")? else {
            return Err(missing(&format, "schema"));
        };
        let schema = AnswerFormat::Schema {
            name: None,
            description: None,
            schema: Cow::Borrowed(schema),
            strict: None,
        };
        self.conversation.options.format = placed(path, Some(schema));
        format.finish_options(self.losses);
        Ok(())
    }

    /// Takes `metadata`, whose `user_id` can contain the client's session. If the provider supports a cache key, weir sends the
    /// session to the provider as this key. The key replaces the client's cache marks.
    fn read_metadata(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(mut metadata) = object.object("metadata")? else {
            return Ok(());
        };
        self.losses.dropped(metadata.path());
        if self.target.translation.to == UpstreamProtocol::Responses
            && let Some(user) = metadata.text("user_id")?
            && let Some(session) = session_of(&user)
        {
            self.losses.adapted(USER_ID);
            self.conversation.options.cache_key = placed(USER_ID, Some(Cow::Owned(session)));
        }
        Ok(())
    }
}

/// Returns the session that Claude Code's user id contains. The user id is a JSON object; in earlier versions, it consists of
/// words joined by `_`.
fn session_of(user_id: &str) -> Option<String> {
    let session = match MemberReader::new(user_id, USER_ID) {
        Ok(mut user) => user.text("session_id").ok().flatten()?.into_owned(),
        Err(_) => user_id.rsplit_once("_session_")?.1.to_owned(),
    };
    let is_key = (1..=CACHE_KEY_BYTES_MAX).contains(&session.len()) && session.chars().all(|c| c.is_ascii_graphic());
    is_key.then_some(session)
}
