//! Reads the parts of messages and of results: text, refusals, images, files and audio.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{BlockContent, ContentBlock, MediaContent, MediaKind, MediaSource},
    losses::Untranslatable,
    members::{MemberReader, as_text, elements},
    read::{
        STORED_FILE,
        responses::{ENCRYPTED, ResponsesRequestReader, is_empty},
    },
};

/// The prefix of a PDF in base64.
const PDF_BASE64: &str = "JVBERi0";
/// The file extensions of text files.
const TEXT_ENDINGS: [&str; 10] = ["txt", "md", "csv", "tsv", "json", "xml", "html", "yaml", "yml", "toml"];
/// The reason for refusing a member that has to contain the bytes or the URL of media.
const MEDIA_SOURCE: &str = "must be a URL, or a data URL with a media type and base64 data";

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Reads content that is a string or a list of parts. Empty text is omitted.
    ///
    /// # Errors
    /// A part cannot be translated.
    pub(super) fn read_content(
        &mut self,
        value: &'a RawValue,
        path: String,
    ) -> Result<Vec<ContentBlock<'a>>, Untranslatable> {
        let mut blocks = Vec::new();
        match as_text(value) {
            Some(text) => {
                let content = BlockContent::Text(text);
                blocks.push(ContentBlock { path, content });
            }
            None => {
                for (path, part) in elements(value, &path)? {
                    blocks.push(self.read_part(path, part)?);
                }
            }
        }
        blocks.retain(|block| !is_empty(&block.content));
        Ok(blocks)
    }

    fn read_part(&mut self, path: String, part: &'a RawValue) -> Result<ContentBlock<'a>, Untranslatable> {
        let mut object = MemberReader::new(part.get(), path)?;
        let content = match &*object.required_text("type")? {
            "input_text" | "output_text" | "text" => BlockContent::Text(object.required_text("text")?),
            "refusal" => BlockContent::Refusal(object.required_text("refusal")?),
            "input_image" => self.read_image(&mut object)?,
            "input_file" => self.read_file(&mut object)?,
            "input_audio" => read_audio(&mut object)?,
            "encrypted_content" => return Err(Untranslatable::new(object.path(), ENCRYPTED)),
            _ => {
                let reason = "weir cannot translate content of this type to the protocol of this model's provider";
                return Err(Untranslatable::new(object.path(), reason));
            }
        };
        for name in ["annotations", "logprobs"] {
            if object.array(name)?.is_some_and(|list| !list.is_empty()) {
                self.losses.dropped(object.path_of(name));
            }
        }
        object.drop_members(&["prompt_cache_breakpoint"], self.losses);
        let path = object.path().to_owned();
        object.finish_content()?;
        Ok(ContentBlock { path, content })
    }

    fn read_image(&mut self, object: &mut MemberReader<'a>) -> Result<BlockContent<'a>, Untranslatable> {
        object.refuse("file_id", STORED_FILE)?;
        self.drop_detail(object)?;
        let url = object.required_text("image_url")?;
        Ok(media(MediaKind::Image, read_source(url, object, "image_url")?, None))
    }

    fn read_file(&mut self, object: &mut MemberReader<'a>) -> Result<BlockContent<'a>, Untranslatable> {
        object.refuse("file_id", STORED_FILE)?;
        self.drop_detail(object)?;
        let name = object.text("filename")?;
        let Some(data) = object.text("file_data")? else {
            let Some(url) = object.text("file_url")? else {
                return Err(Untranslatable::new(object.path(), "needs `file_data` or `file_url`"));
            };
            return Ok(media(MediaKind::Document, read_source(url, object, "file_url")?, name));
        };
        object.drop_members(&["file_url"], self.losses);
        let Some((media_type, data)) = split_file_data(data, name.as_deref()) else {
            let reason = "must be base64, or a data URL in base64 with its media type";
            return Err(Untranslatable::new(object.path_of("file_data"), reason));
        };
        if is_text(&media_type) {
            return self.read_text_file(object, name.as_deref(), &data);
        }
        let kind = media_kind(&media_type);
        Ok(media(kind, MediaSource::Base64 { media_type, data }, name))
    }

    /// Returns the text of a file, below the file's name.
    fn read_text_file(
        &mut self,
        object: &MemberReader<'a>,
        name: Option<&str>,
        data: &str,
    ) -> Result<BlockContent<'a>, Untranslatable> {
        let bytes = STANDARD.decode(data).ok();
        let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            let reason = "must be a text in UTF-8, in base64";
            return Err(Untranslatable::new(object.path_of("file_data"), reason));
        };
        self.losses.adapted(object.path());
        Ok(BlockContent::Text(Cow::Owned(match name {
            Some(name) => format!("{name}\n\n{text}"),
            None => text,
        })))
    }

    fn drop_detail(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        match object.text("detail")?.as_deref() {
            None | Some("auto") => {}
            Some(_) => self.losses.dropped(object.path_of("detail")),
        }
        Ok(())
    }
}

/// Reads audio in the form of the API (`input_audio` with data and format), or in the form that Codex sends (`audio_url`).
fn read_audio<'a>(object: &mut MemberReader<'a>) -> Result<BlockContent<'a>, Untranslatable> {
    let Some(mut audio) = object.object("input_audio")? else {
        let url = object.required_text("audio_url")?;
        return Ok(media(MediaKind::Audio, read_source(url, object, "audio_url")?, None));
    };
    let data = audio.required_text("data")?;
    let format = audio.required_text("format")?;
    audio.finish_content()?;
    let media_type = Cow::Owned(format!("audio/{format}"));
    Ok(media(MediaKind::Audio, MediaSource::Base64 { media_type, data }, None))
}

/// Returns the source of media. `url` is the value of the member `name` of `object`: a URL or a data URL.
fn read_source<'a>(
    url: Cow<'a, str>,
    object: &MemberReader<'a>,
    name: &str,
) -> Result<MediaSource<'a>, Untranslatable> {
    if is_data_url(&url) {
        return match split_data_url(url) {
            Some((media_type, data)) => Ok(MediaSource::Base64 { media_type, data }),
            None => Err(Untranslatable::new(object.path_of(name), MEDIA_SOURCE)),
        };
    }
    match url.is_empty() {
        true => Err(Untranslatable::new(object.path_of(name), MEDIA_SOURCE)),
        false => Ok(MediaSource::Url { url, media_type: None }),
    }
}

fn media<'a>(kind: MediaKind, source: MediaSource<'a>, name: Option<Cow<'a, str>>) -> BlockContent<'a> {
    BlockContent::Media(MediaContent { kind, source, name })
}

/// Splits the data of a file, which is either a data URL or plain base64, into its media type and its base64. Returns `None` if a
/// data URL is not usable.
fn split_file_data<'a>(data: Cow<'a, str>, name: Option<&str>) -> Option<(Cow<'a, str>, Cow<'a, str>)> {
    if is_data_url(&data) {
        return split_data_url(data);
    }
    let ending = name
        .and_then(|name| name.rsplit_once('.'))
        .map(|(_, ending)| ending.to_ascii_lowercase());
    let ending = ending.as_deref().unwrap_or_default();
    let media_type = if ending == "pdf" || data.starts_with(PDF_BASE64) {
        "application/pdf"
    } else if TEXT_ENDINGS.contains(&ending) {
        "text/plain"
    } else {
        "application/octet-stream"
    };
    Some((Cow::Borrowed(media_type), data))
}

fn is_data_url(url: &str) -> bool {
    url.split_once(':')
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("data"))
}

/// Returns the media type and the data of a data URL; `None` if it is not in base64 or has no media type.
fn split_data_url(url: Cow<'_, str>) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    fn split(url: &str) -> Option<(&str, &str)> {
        let (head, data) = url.split_once(',')?;
        let (_, head) = head.split_once(':')?;
        let (media_type, _) = head
            .strip_suffix(";base64")
            .map(|head| head.split_once(';').unwrap_or((head, "")))?;
        (!media_type.is_empty()).then_some((media_type, data))
    }
    Some(match url {
        Cow::Borrowed(url) => {
            let (media_type, data) = split(url)?;
            (Cow::Borrowed(media_type), Cow::Borrowed(data))
        }
        Cow::Owned(url) => {
            let (media_type, data) = split(&url)?;
            (Cow::Owned(media_type.to_owned()), Cow::Owned(data.to_owned()))
        }
    })
}

fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/") || matches!(media_type, "application/json" | "application/xml")
}

fn media_kind(media_type: &str) -> MediaKind {
    let (family, _) = media_type.split_once('/').unwrap_or((media_type, ""));
    match family {
        "image" => MediaKind::Image,
        "audio" => MediaKind::Audio,
        "video" => MediaKind::Video,
        _ => MediaKind::Document,
    }
}
