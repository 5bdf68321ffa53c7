//! The members of a Messages request that control thinking.

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::{
            BlockContent, ContentBlock, Conversation, ConversationTurn, ReasoningEffort, ToolChoice, TurnRole,
        },
        json_out::JsonObjectWriter,
        losses::TranslationLosses,
        reasoning::ReasoningState,
    },
    wire::Protocol,
};

/// The minimum thinking budget, in tokens.
const BUDGET_MIN: u64 = 1_024;

/// The member `thinking` and the member for the effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThinkingMembers {
    form: ThinkingForm,
    display: Option<&'static str>,
    /// The value of `output_config.effort`; `None` if the member is not written.
    pub(super) effort: Option<&'static str>,
}

/// The type of thinking that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinkingForm {
    /// The model's own default.
    Unset,
    /// No thinking.
    Disabled,
    /// Thinking; the model decides how much it thinks.
    Adaptive,
    /// Thinking with a budget.
    Enabled {
        /// The budget in tokens.
        budget: u64,
    },
}

impl ThinkingMembers {
    /// Creates the members from the client's options about reasoning. `max_tokens` is the maximum number of output tokens.
    pub(super) fn new(
        conversation: &Conversation<'_>,
        target: &TranslationTarget<'_>,
        max_tokens: u64,
        losses: &mut TranslationLosses,
    ) -> Self {
        let (form, effort) = form_and_effort(conversation, max_tokens, losses);
        let mut members = Self {
            form,
            display: None,
            effort,
        };
        let from = target.translation.from;
        match conversation.options.shows_reasoning {
            Some(shows_reasoning) if members.is_on() => {
                // The reader of Responses has already reported the member, which has two possible names.
                if from != Protocol::Responses {
                    losses.adapted(display_path(from));
                }
                members.display = Some(if shows_reasoning { "summarized" } else { "omitted" });
            }
            // The client will get no reasoning. For Responses, its reader has already reported the member.
            Some(true) if from == Protocol::Gemini => losses.dropped(display_path(from)),
            Some(_) | None => {}
        }
        members
    }

    /// Whether the request asks for thinking.
    pub(super) fn is_on(&self) -> bool {
        match self.form {
            ThinkingForm::Unset | ThinkingForm::Disabled => false,
            ThinkingForm::Adaptive | ThinkingForm::Enabled { .. } => true,
        }
    }

    /// Writes the member `thinking`.
    pub(super) fn write(&self, object: &mut JsonObjectWriter<'_>) {
        let (word, budget) = match self.form {
            ThinkingForm::Unset => return,
            ThinkingForm::Disabled => ("disabled", None),
            ThinkingForm::Adaptive => ("adaptive", None),
            ThinkingForm::Enabled { budget } => ("enabled", Some(budget)),
        };
        object.object("thinking", |thinking| {
            thinking.text("type", word);
            if let Some(budget) = budget {
                thinking.number("budget_tokens", budget);
            }
            if let Some(display) = self.display {
                thinking.text("display", display);
            }
        });
    }
}

fn form_and_effort(
    conversation: &Conversation<'_>,
    max_tokens: u64,
    losses: &mut TranslationLosses,
) -> (ThinkingForm, Option<&'static str>) {
    // The protocol refuses thinking together with a forced call.
    let is_forced = match conversation.tool_choice {
        ToolChoice::Unset | ToolChoice::Auto | ToolChoice::Forbidden => false,
        ToolChoice::Required | ToolChoice::Named(_) => true,
    };
    let Some(option) = &conversation.options.reasoning else {
        // A client that wants to see reasoning wants the model to reason.
        let wants_thinking = conversation.options.shows_reasoning == Some(true) && !is_forced;
        let form = if wants_thinking {
            ThinkingForm::Adaptive
        } else {
            ThinkingForm::Unset
        };
        return (form, None);
    };
    let request = option.value;
    let Some(effort) = effort_word(request.effort) else {
        return (ThinkingForm::Disabled, None);
    };
    if request.budget.is_some() && has_call_without_thinking(&conversation.turns) {
        losses.dropped(&*option.path);
        return (ThinkingForm::Unset, None);
    }
    losses.adapted(&*option.path);
    match request.budget {
        _ if is_forced => (ThinkingForm::Unset, Some(effort)),
        Some(budget) if max_tokens > BUDGET_MIN => {
            let budget = budget.clamp(BUDGET_MIN, max_tokens - 1);
            (ThinkingForm::Enabled { budget }, None)
        }
        // The maximum number of output tokens is too low for any budget, or the client sets no budget.
        Some(_) | None => (ThinkingForm::Adaptive, Some(effort)),
    }
}

/// Returns the value of `output_config.effort` for this effort; `None` for no reasoning.
fn effort_word(effort: ReasoningEffort) -> Option<&'static str> {
    match effort {
        ReasoningEffort::Off => None,
        ReasoningEffort::Minimal | ReasoningEffort::Low => Some("low"),
        ReasoningEffort::Medium => Some("medium"),
        ReasoningEffort::High => Some("high"),
        ReasoningEffort::ExtraHigh => Some("xhigh"),
        ReasoningEffort::Max => Some("max"),
    }
}

/// Whether the model's last turn has calls and does not begin with thinking, for example because another model wrote it. The
/// protocol refuses such a turn if thinking has a budget.
fn has_call_without_thinking(turns: &[ConversationTurn<'_>]) -> bool {
    let last = turns.iter().rev().find(|turn| turn.role == TurnRole::Assistant);
    last.is_some_and(|turn| {
        let has_calls = turn.blocks.iter().any(ContentBlock::is_call);
        let first = turn.blocks.first().map(|block| &block.content);
        let begins_with_thinking = matches!(
            first,
            Some(BlockContent::Reasoning(
                ReasoningState::Thinking { .. } | ReasoningState::Redacted { .. }
            ))
        );
        has_calls && !begins_with_thinking
    })
}

/// Returns the path of the member with which the client states whether it wants reasoning.
fn display_path(from: Protocol) -> &'static str {
    match from {
        Protocol::Messages => "thinking.display",
        Protocol::Responses => "reasoning.summary",
        Protocol::Gemini => "generationConfig.thinkingConfig.includeThoughts",
    }
}
