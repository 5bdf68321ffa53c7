//! Reads text, images, documents and search results, in messages and in the results of calls.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{BlockContent, ContentBlock, MediaContent, MediaKind, MediaSource},
    losses::Untranslatable,
    members::{MemberReader, as_text, elements, missing},
    read::{
        STORED_FILE,
        messages::{MessagesRequestReader, required_object, unknown_content},
    },
    tool_names::provider_tool_name,
};

impl<'a> MessagesRequestReader<'a, '_> {
    /// Reads content that is a string, or a list of blocks of these types. Empty text is omitted.
    ///
    /// # Errors
    /// A block cannot be translated.
    pub(super) fn read_content(
        &mut self,
        value: &'a RawValue,
        path: String,
        kinds: &[&str],
    ) -> Result<Vec<ContentBlock<'a>>, Untranslatable> {
        if let Some(text) = as_text(value) {
            return Ok(ContentBlock::from_text(path, text));
        }
        let mut blocks = Vec::new();
        for (path, part) in elements(value, &path)? {
            let mut object = MemberReader::new(part.get(), path)?;
            let kind = object.required_text("type")?;
            if !kinds.contains(&&*kind) {
                return Err(unknown_content(&object, &kind));
            }
            blocks.extend(self.read_part(&kind, object)?);
        }
        Ok(blocks)
    }

    /// Reads a block of this type. Returns no block for empty text, and several blocks for some documents.
    ///
    /// # Errors
    /// The block cannot be translated.
    pub(super) fn read_part(
        &mut self,
        kind: &str,
        mut object: MemberReader<'a>,
    ) -> Result<Vec<ContentBlock<'a>>, Untranslatable> {
        let blocks = match kind {
            "text" => {
                let text = object.required_text("text")?;
                ContentBlock::from_text(object.path().to_owned(), text)
            }
            "image" => vec![read_image(&mut object)?],
            "document" => self.read_document(&mut object)?,
            "search_result" => self.read_search_result(&mut object)?,
            "tool_reference" => self.read_tool_reference(&mut object)?,
            _ => return Err(unknown_content(&object, kind)),
        };
        self.finish_part(object)?;
        Ok(blocks)
    }

    /// Handles the members that any block can have, and refuses unknown members.
    ///
    /// # Errors
    /// The object has a member that weir does not know.
    pub(super) fn finish_part(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        if object.take("citations").is_some_and(has_citations) {
            self.losses.dropped(object.path_of("citations"));
        }
        object.drop_members(&["cache_control", "transformations"], self.losses);
        object.finish_content()
    }

    /// Reads a document. If it contains text or blocks, its title and its `context` are placed above them. If it is a file, its
    /// `context` is placed before the file, and its title becomes the file's name.
    fn read_document(&mut self, object: &mut MemberReader<'a>) -> Result<Vec<ContentBlock<'a>>, Untranslatable> {
        let title = object.text("title")?.filter(|title| !title.is_empty());
        let context = object.text("context")?.filter(|context| !context.is_empty());
        let mut source = required_object(object, "source")?;
        let kind = source.required_text("type")?;
        let path = object.path().to_owned();
        let mut blocks = Vec::new();
        match &*kind {
            "text" => {
                source.ignore(&["media_type"]);
                let text = source.required_text("data")?;
                self.losses.adapted(path.as_str());
                blocks.extend(ContentBlock::from_text(path, joined([title, context, Some(text)])));
            }
            "content" => {
                let Some(content) = source.take("content") else {
                    return Err(missing(&source, "content"));
                };
                self.losses.adapted(path.as_str());
                blocks.extend(ContentBlock::from_text(path, joined([title, context])));
                blocks.extend(self.read_content(content, source.path_of("content"), &["text", "image"])?);
            }
            kind => {
                let bytes = read_source(kind, &mut source)?;
                if let Some(context) = context {
                    let path = object.path_of("context");
                    self.losses.adapted(path.as_str());
                    blocks.extend(ContentBlock::from_text(path, context));
                }
                blocks.push(media_block(path, MediaKind::Document, bytes, title));
            }
        }
        source.finish_content()?;
        Ok(blocks)
    }

    /// Reads a search result that the client sends. Its text is placed below its title and its source.
    fn read_search_result(&mut self, object: &mut MemberReader<'a>) -> Result<Vec<ContentBlock<'a>>, Untranslatable> {
        let title = object.required_text("title")?;
        let source = object.required_text("source")?;
        let Some(content) = object.take("content") else {
            return Err(missing(object, "content"));
        };
        let mut texts = vec![Some(Cow::Owned(format!("{title}\n{source}")))];
        for block in self.read_content(content, object.path_of("content"), &["text"])? {
            if let BlockContent::Text(text) = block.content {
                texts.push(Some(text));
            }
        }
        self.losses.adapted(object.path());
        Ok(ContentBlock::from_text(object.path().to_owned(), joined(texts)))
    }

    /// Reads a reference to a tool that the client's own search has found. weir offers the tool to the provider from the
    /// beginning of the conversation, so the provider needs no reference. weir replaces the reference with a text, which tells
    /// the model that it can now call the tool.
    fn read_tool_reference(&mut self, object: &mut MemberReader<'a>) -> Result<Vec<ContentBlock<'a>>, Untranslatable> {
        let name = provider_tool_name(object.required_text("tool_name")?);
        self.losses.adapted(object.path());
        let text = Cow::Owned(format!("The tool `{name}` can be called now."));
        Ok(ContentBlock::from_text(object.path().to_owned(), text))
    }
}

fn read_image<'a>(object: &mut MemberReader<'a>) -> Result<ContentBlock<'a>, Untranslatable> {
    let mut source = required_object(object, "source")?;
    let kind = source.required_text("type")?;
    let bytes = read_source(&kind, &mut source)?;
    source.finish_content()?;
    Ok(media_block(object.path().to_owned(), MediaKind::Image, bytes, None))
}

/// Reads the location of the bytes of an image or a file.
fn read_source<'a>(kind: &str, source: &mut MemberReader<'a>) -> Result<MediaSource<'a>, Untranslatable> {
    match kind {
        "base64" => Ok(MediaSource::Base64 {
            media_type: source.required_text("media_type")?,
            data: source.required_text("data")?,
        }),
        "url" => Ok(MediaSource::Url {
            url: source.required_text("url")?,
            media_type: None,
        }),
        "file" => Err(Untranslatable::new(source.path_of("file_id"), STORED_FILE)),
        _ => Err(unknown_content(source, kind)),
    }
}

/// Whether `citations` contains sources, or requests citations.
fn has_citations(value: &RawValue) -> bool {
    match elements(value, "") {
        Ok(citations) => !citations.is_empty(),
        Err(_) => {
            let enabled = MemberReader::new(value.get(), "").and_then(|mut citations| citations.flag("enabled"));
            !matches!(enabled, Ok(None | Some(false)))
        }
    }
}

/// Returns the non-empty texts, joined by blank lines.
fn joined<'a>(texts: impl IntoIterator<Item = Option<Cow<'a, str>>>) -> Cow<'a, str> {
    let texts = texts.into_iter().flatten().filter(|text| !text.is_empty());
    let texts: Vec<Cow<'a, str>> = texts.collect();
    Cow::Owned(texts.join("\n\n"))
}

fn media_block<'a>(
    path: String,
    kind: MediaKind,
    source: MediaSource<'a>,
    name: Option<Cow<'a, str>>,
) -> ContentBlock<'a> {
    let content = BlockContent::Media(MediaContent { kind, source, name });
    ContentBlock { path, content }
}
