//! Reads the functions that a request offers, and the choice among them.

use std::{borrow::Cow, collections::BTreeSet};

use crate::domain::translation::{
    conversation::{ToolChoice, ToolDefinition},
    losses::{TranslationMode, Untranslatable},
    read::{
        STORED_FILE,
        gemini::{GeminiRequestReader, object::GeminiObject, schema::json_schema},
    },
    tool_names::{ClientTool, TOOLS_MAX, ToolKind, provider_name, provider_tool_name},
};

/// The tools that a provider runs itself, or whose functions only that provider's models know.
const HOSTED_TOOLS: [&str; 10] = [
    "googleSearch",
    "googleSearchRetrieval",
    "enterpriseWebSearch",
    "parallelAiSearch",
    "exaAiSearch",
    "urlContext",
    "googleMaps",
    "codeExecution",
    "computerUse",
    "mcpServers",
];

impl<'a> GeminiRequestReader<'a, '_> {
    /// Reads `tools`.
    ///
    /// # Errors
    /// A tool cannot be translated.
    pub(super) fn read_tools(&mut self, object: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        for (path, tool) in object.list("tools")? {
            let mut tool = GeminiObject::new(tool.get(), path)?;
            for (path, function) in tool.list("functionDeclarations")? {
                self.read_function(GeminiObject::new(function.get(), path)?)?;
            }
            self.drop_hosted_tools(&mut tool)?;
            self.finish_tool(tool)?;
        }
        Ok(())
    }

    fn read_function(&mut self, mut object: GeminiObject<'a>) -> Result<(), Untranslatable> {
        let path = object.path().to_owned();
        let name_path = object.path_of("name");
        let client_name = object.required_text("name")?;
        let client_name = &*client_name;
        let offered = self.names.client_tool(&provider_name(None, client_name));
        if offered.is_some_and(|tool| tool.name == client_name) {
            // The first definition counts, because changing it would change the beginning of the prompt.
            self.losses.dropped(path);
            return Ok(());
        }
        let tool = ClientTool {
            namespace: None,
            name: client_name.to_owned(),
            kind: ToolKind::Function,
        };
        let name = self.names.add(tool, &path)?;
        if name != client_name {
            self.losses.adapted(name_path);
        }
        let definition = ToolDefinition {
            path,
            name: Cow::Owned(name),
            description: object.text("description")?,
            schema: self.read_parameters(&mut object)?,
            strict: None,
        };
        self.conversation.tools.push(definition);
        let behavior_path = object.path_of("behavior");
        if object
            .text("behavior")?
            .is_some_and(|behavior| behavior == "NON_BLOCKING")
        {
            self.losses.dropped(behavior_path);
        }
        object.drop_members(&["response", "responseJsonSchema"], self.losses);
        object.finish_options(self.losses);
        Ok(())
    }

    /// Takes the parameters of a function. Returns a JSON schema unchanged, and converts a schema in Google's form.
    fn read_parameters(&mut self, object: &mut GeminiObject<'a>) -> Result<Option<Cow<'a, str>>, Untranslatable> {
        if let Some(schema) = object.object_text("parametersJsonSchema")? {
            object.drop_members(&["parameters"], self.losses);
            return Ok(Some(Cow::Borrowed(schema)));
        }
        let path = object.path_of("parameters");
        let Some(schema) = object.object_text("parameters")? else {
            return Ok(None);
        };
        let Some(schema) = json_schema(schema) else {
            return Err(Untranslatable::new(path, "must be a schema"));
        };
        if matches!(schema, Cow::Owned(_)) {
            self.losses.adapted(path);
        }
        Ok(Some(schema))
    }

    /// Drops tools that only another provider can run. Refuses tools that refer to files stored at that provider.
    fn drop_hosted_tools(&mut self, tool: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        tool.refuse("retrieval", STORED_FILE)?;
        if let Some(mut search) = tool.object("fileSearch")? {
            search.refuse("fileSearchStoreNames", STORED_FILE)?;
            self.drop_hosted_tool(search.path().to_owned());
        }
        for name in HOSTED_TOOLS {
            if tool.contains(name) {
                let path = tool.path_of(name);
                tool.take(name);
                self.drop_hosted_tool(path);
            }
        }
        Ok(())
    }

    fn drop_hosted_tool(&mut self, path: String) {
        self.losses.dropped(path.as_str());
        self.hosted_tool.get_or_insert(path);
    }

    /// Handles the remaining members of a tool, each of which is a kind of tool that weir does not know.
    fn finish_tool(&mut self, tool: GeminiObject<'a>) -> Result<(), Untranslatable> {
        match self.target.translation.mode {
            TranslationMode::Strict => tool.finish_content().map_err(|refusal| Untranslatable {
                reason: Cow::Borrowed("weir does not know tools of this kind; leave it out"),
                ..refusal
            }),
            TranslationMode::Lossy => {
                tool.finish_options(self.losses);
                Ok(())
            }
        }
    }

    /// Reads `toolConfig`, which states which functions the model is allowed or forced to call. The tools must have been read.
    ///
    /// # Errors
    /// The choice is unknown, or allows only functions that are not offered.
    pub(super) fn read_tool_config(&mut self, object: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        let Some(mut tool_config) = object.object("toolConfig")? else {
            return Ok(());
        };
        if let Some(mut calling) = tool_config.object("functionCallingConfig")? {
            let choice = self.read_mode(&mut calling)?;
            let path = calling.path_of("allowedFunctionNames");
            let allowed = calling.texts("allowedFunctionNames")?.unwrap_or_default();
            self.conversation.tool_choice = match allowed.is_empty() {
                true => choice,
                false => self.allow_functions(allowed, path, choice)?,
            };
            let stream_path = calling.path_of("streamFunctionCallArguments");
            if calling.flag("streamFunctionCallArguments")? == Some(true) {
                self.losses.dropped(stream_path);
            }
            calling.finish_options(self.losses);
        }
        tool_config.drop_members(&["retrievalConfig", "includeServerSideToolInvocations"], self.losses);
        tool_config.finish_options(self.losses);
        Ok(())
    }

    fn read_mode(&mut self, calling: &mut GeminiObject<'a>) -> Result<ToolChoice<'a>, Untranslatable> {
        let path = calling.path_of("mode");
        let mode = calling.text("mode")?.unwrap_or_default();
        match mode.to_ascii_uppercase().as_str() {
            "" | "MODE_UNSPECIFIED" => Ok(ToolChoice::Unset),
            "AUTO" => Ok(ToolChoice::Auto),
            "ANY" => Ok(ToolChoice::Required),
            "NONE" => Ok(ToolChoice::Forbidden),
            // Like `AUTO`, but calls are guaranteed to follow their schemas.
            "VALIDATED" => {
                self.losses.adapted(path);
                Ok(ToolChoice::Auto)
            }
            _ => Err(Untranslatable::new(
                path,
                "must be `AUTO`, `ANY`, `NONE` or `VALIDATED`",
            )),
        }
    }

    /// Restricts the functions to the allowed ones. If a call is forced and only one function is allowed, keeps all functions,
    /// and returns a choice that names the allowed one.
    fn allow_functions(
        &mut self,
        allowed: Vec<Cow<'a, str>>,
        path: String,
        choice: ToolChoice<'a>,
    ) -> Result<ToolChoice<'a>, Untranslatable> {
        if choice == ToolChoice::Forbidden {
            self.losses.dropped(path);
            return Ok(choice);
        }
        if allowed.len() > TOOLS_MAX {
            return Err(Untranslatable::new(
                path,
                format!("can have at most {TOOLS_MAX} functions"),
            ));
        }
        let mut offered = BTreeSet::new();
        for (index, client_name) in allowed.into_iter().enumerate() {
            let name = provider_tool_name(client_name.clone());
            let tool = self.names.client_tool(&name);
            if tool.is_some_and(|tool| tool.name == client_name) {
                offered.insert(name);
            } else {
                self.losses.dropped(format!("{path}[{index}]"));
            }
        }
        if choice == ToolChoice::Required && offered.len() == 1 {
            return Ok(offered.pop_first().map_or(choice, ToolChoice::Named));
        }
        if offered.is_empty() {
            let reason = "none of these is among the functions that the request offers; allow another";
            return Err(Untranslatable::new(path, reason));
        }
        let all = self.conversation.tools.len();
        self.conversation.tools.retain(|tool| offered.contains(&tool.name));
        if self.conversation.tools.len() < all {
            self.losses.adapted(path);
        }
        Ok(choice)
    }

    /// Refuses a request without functions if it forces a call, or if it allows calls and has tools that the provider cannot run.
    ///
    /// # Errors
    /// The request is refused.
    pub(super) fn check_tools(&self) -> Result<(), Untranslatable> {
        if !self.conversation.tools.is_empty() {
            return Ok(());
        }
        match (&self.conversation.tool_choice, &self.hosted_tool) {
            (ToolChoice::Unset | ToolChoice::Auto, None) | (ToolChoice::Forbidden, _) => Ok(()),
            (_, Some(path)) => Err(Untranslatable::new(
                path.as_str(),
                "this model's provider does not run this tool, and the request offers no function; leave it out",
            )),
            (ToolChoice::Required | ToolChoice::Named(_), None) => Err(Untranslatable::new(
                "toolConfig.functionCallingConfig.mode",
                "forces a call, but the request offers no function; offer one, or use `AUTO`",
            )),
        }
    }
}
