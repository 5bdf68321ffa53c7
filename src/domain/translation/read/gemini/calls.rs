//! Reads calls of functions and their results. In this protocol, ids of calls are optional. A result without an id belongs to the
//! first call of the same name that has no result yet.

use std::{borrow::Cow, collections::VecDeque};

use crate::domain::{
    QuickMap,
    translation::{
        conversation::{BlockContent, ContentBlock, ToolCall, ToolCallResult, TurnRole},
        losses::Untranslatable,
        members::{MemberReader, as_text},
        read::gemini::{GeminiRequestReader, contents::PART_OPTIONS, media::take_media, object::GeminiObject},
        tool_names::provider_tool_name,
    },
};

/// The members of a function's response that weir unwraps if the response has no other members. The boolean says whether the
/// member means a failure.
const RESPONSE_MEMBERS: [(&str, bool); 3] = [("output", false), ("result", false), ("error", true)];
/// The reason for refusing a result that belongs to no call.
const NO_CALL: &str =
    "no earlier call has this id, and no earlier call of this name still lacks a result; send the call as well";
/// The reason for refusing a second result of a call.
const SECOND_RESULT: &str = "the call of this result already has another result; send one result for each call";

/// The calls of the history, indexed by the ids and names that results can refer to.
#[derive(Default)]
pub(super) struct GeminiCallHistory<'a> {
    calls: Vec<GeminiPastCall<'a>>,
    /// The index of the last call with each client id.
    by_id: QuickMap<Cow<'a, str>, usize>,
    /// The index of the last turn with calls; `None` if there is no such turn.
    turn: Option<usize>,
    /// The number of calls in that turn.
    turn_calls: usize,
    /// For each tool, by the client's name, the indexes of its calls in the last turn with calls. A list can contain calls that
    /// already have a result; a search removes such calls from the beginning of the list.
    waiting: QuickMap<Cow<'a, str>, VecDeque<usize>>,
}

/// A function call in the request's history.
struct GeminiPastCall<'a> {
    /// The call's id at the provider.
    id: Cow<'a, str>,
    /// The tool's name at the provider.
    name: Cow<'a, str>,
    has_client_id: bool,
    /// The content of the call's result; `None` while the call waits for one.
    result: Option<GeminiResultContent<'a>>,
}

/// The content of a result in the client's spelling.
#[derive(PartialEq, Eq)]
struct GeminiResultContent<'a> {
    response: Option<&'a str>,
    parts: Vec<&'a str>,
}

impl<'a> GeminiCallHistory<'a> {
    /// Counts a new call of turn `turn`, and returns its index within the turn.
    fn next_number(&mut self, turn: usize) -> usize {
        if self.turn != Some(turn) {
            self.turn = Some(turn);
            self.turn_calls = 0;
            self.waiting = QuickMap::default();
        }
        let number = self.turn_calls;
        self.turn_calls += 1;
        number
    }

    /// Adds a call with the client's name of the tool, and with the client's id if it has one.
    fn add(&mut self, client_id: Option<Cow<'a, str>>, client_name: Cow<'a, str>, call: GeminiPastCall<'a>) {
        let index = self.calls.len();
        self.calls.push(call);
        if let Some(id) = client_id {
            self.by_id.insert(id, index);
        }
        self.waiting.entry(client_name).or_default().push_back(index);
    }

    /// Returns the call that a result with this id and name belongs to; `None` if the client has sent the same result before, as
    /// Gemini CLI does in a resumed conversation.
    ///
    /// # Errors
    /// The result is refused; the error is the reason.
    fn answered(
        &mut self,
        id: Option<&str>,
        name: Option<&str>,
        content: GeminiResultContent<'a>,
    ) -> Result<Option<&GeminiPastCall<'a>>, &'static str> {
        let by_id = id.and_then(|id| self.by_id.get(id)).copied();
        let index = match (by_id, name) {
            (Some(index), _) => Some(index),
            (None, Some(name)) => self.first_waiting(name, id.is_some()),
            (None, None) => None,
        };
        let call = index.and_then(|index| self.calls.get_mut(index)).ok_or(NO_CALL)?;
        match &call.result {
            Some(first) if by_id.is_some() && *first == content => return Ok(None),
            Some(_) => return Err(SECOND_RESULT),
            None => call.result = Some(content),
        }
        Ok(Some(&*call))
    }

    /// Returns the index of the first call with this name that has no result, among the calls of the last turn with calls. If
    /// `has_other_id` is true, the result has an id that no call has, so the result cannot belong to a call with an id. In this
    /// case, the function returns `None` if the first call has an id.
    fn first_waiting(&mut self, name: &str, has_other_id: bool) -> Option<usize> {
        let waiting = self.waiting.get_mut(name)?;
        loop {
            let index = *waiting.front()?;
            let call = self.calls.get(index)?;
            if call.result.is_none() {
                let fits = !(has_other_id && call.has_client_id);
                return fits.then_some(index);
            }
            waiting.pop_front();
        }
    }
}

impl<'a> GeminiRequestReader<'a, '_> {
    /// Reads the `functionCall` of the part at `path`.
    ///
    /// # Errors
    /// The call is incomplete or has members that weir does not know.
    pub(super) fn read_call(&mut self, path: String, mut object: GeminiObject<'a>) -> Result<(), Untranslatable> {
        let client_name = object.required_text("name")?;
        let client_id = object.text("id")?.filter(|id| !id.is_empty());
        let arguments = object.object_text("args")?.unwrap_or("{}");
        let continue_path = object.path_of("willContinue");
        if object.flag("willContinue")? == Some(true) {
            let reason = "a call must be complete; send its arguments in one part";
            return Err(Untranslatable::new(continue_path, reason));
        }
        object.finish_content()?;
        let turns = &self.conversation.turns;
        let is_inside = turns.last().is_some_and(|turn| turn.role == TurnRole::Assistant);
        let turn = turns.len() - usize::from(is_inside);
        let number = self.calls.next_number(turn);
        let id = match &client_id {
            Some(id) => id.clone(),
            None => Cow::Owned(format!("call_{turn}_{number}")),
        };
        let id = self.target.provider_call_id(id);
        let name = provider_tool_name(client_name.clone());
        let past = GeminiPastCall {
            id: id.clone(),
            name: name.clone(),
            has_client_id: client_id.is_some(),
            result: None,
        };
        self.calls.add(client_id, client_name, past);
        let call = ToolCall {
            id,
            name,
            arguments: Cow::Borrowed(arguments),
        };
        self.push(TurnRole::Assistant, path, BlockContent::Call(call));
        Ok(())
    }

    /// Reads the `functionResponse` of the part at `path`.
    ///
    /// # Errors
    /// The result belongs to no call, or has content that cannot be translated.
    pub(super) fn read_result(&mut self, path: String, mut object: GeminiObject<'a>) -> Result<(), Untranslatable> {
        let client_id = object.text("id")?.filter(|id| !id.is_empty());
        let client_name = object.text("name")?;
        let response_path = object.path_of("response");
        let response = object.object_text("response")?;
        let parts = object.list("parts")?;
        let said = GeminiResultContent {
            response,
            parts: parts.iter().map(|(_, part)| part.get()).collect(),
        };
        let call = self.calls.answered(client_id.as_deref(), client_name.as_deref(), said);
        let Some(call) = call.map_err(|reason| Untranslatable::new(object.path(), reason))? else {
            self.losses.dropped(path);
            return Ok(());
        };
        let (call_id, name) = (call.id.clone(), call.name.clone());
        let (text, is_error) = match response {
            Some(response) => response_text(response)?,
            None => (Cow::Borrowed(""), false),
        };
        let mut content = ContentBlock::from_text(response_path, text);
        for (path, part) in parts {
            content.push(self.read_result_part(GeminiObject::new(part.get(), path)?)?);
        }
        object.drop_members(&["scheduling"], self.losses);
        let continue_path = object.path_of("willContinue");
        if object.flag("willContinue")? == Some(true) {
            self.losses.dropped(continue_path);
        }
        object.finish_content()?;
        let result = ToolCallResult {
            call_id,
            name: Some(name),
            content,
            is_error,
        };
        self.push(TurnRole::User, path, BlockContent::Result(result));
        Ok(())
    }

    fn read_result_part(&mut self, mut part: GeminiObject<'a>) -> Result<ContentBlock<'a>, Untranslatable> {
        let content = match take_media(&mut part)? {
            Some(media) => BlockContent::Media(media),
            None => {
                let reason = "needs `inlineData` or `fileData`; send text in `response` instead";
                return Err(Untranslatable::new(part.path(), reason));
            }
        };
        part.drop_members(&PART_OPTIONS, self.losses);
        let path = part.path().to_owned();
        part.finish_content()?;
        Ok(ContentBlock { path, content })
    }
}

/// Returns the text of a function's response, and whether it is a failure. The text is the value of `output`, `result` or `error`
/// if the response has no other members, otherwise the whole response.
fn response_text(response: &str) -> Result<(Cow<'_, str>, bool), Untranslatable> {
    let mut object = MemberReader::new(response, "")?;
    let member = RESPONSE_MEMBERS.into_iter().find(|(name, _)| object.contains(name));
    let value = member.and_then(|(name, is_error)| Some((object.take(name)?, is_error)));
    if let Some((value, is_error)) = value
        && object.finish_content().is_ok()
    {
        let text = as_text(value).unwrap_or(Cow::Borrowed(value.get()));
        return Ok((text, is_error));
    }
    let is_empty = response
        .bytes()
        .all(|byte| matches!(byte, b'{' | b'}') || byte.is_ascii_whitespace());
    let text = if is_empty { "" } else { response };
    Ok((Cow::Borrowed(text), false))
}
