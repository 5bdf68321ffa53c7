//! Writes media as parts of a Gemini request: bytes in the request, or a URL with the media type that the protocol requires.

use crate::domain::translation::{
    conversation::{MediaContent, MediaSource},
    json_out::{JsonArrayWriter, JsonObjectWriter},
    losses::{TranslationLosses, Untranslatable},
    write::document_text,
};

/// The media types of URLs by their file extensions.
const TYPES_BY_ENDING: [(&str, &str); 34] = [
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("webp", "image/webp"),
    ("gif", "image/gif"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("bmp", "image/bmp"),
    ("pdf", "application/pdf"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("xml", "text/xml"),
    ("json", "application/json"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("flac", "audio/flac"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("aac", "audio/aac"),
    ("m4a", "audio/mp4"),
    ("aif", "audio/aiff"),
    ("aiff", "audio/aiff"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("mov", "video/quicktime"),
    ("avi", "video/x-msvideo"),
    ("webm", "video/webm"),
    ("wmv", "video/x-ms-wmv"),
    ("flv", "video/x-flv"),
    ("3gp", "video/3gpp"),
];

/// Writes media as parts of the user.
///
/// # Errors
/// The media are at a URL without a known media type.
pub(super) fn write_media(
    path: &str,
    media: &MediaContent<'_>,
    losses: &mut TranslationLosses,
    parts: &mut JsonArrayWriter<'_>,
) -> Result<(), Untranslatable> {
    if let Some(text) = document_text(media) {
        losses.adapted(path);
        parts.object(|part| part.text("text", &text));
        return Ok(());
    }
    // The protocol has no member for a name, but the conversation may refer to it.
    if let Some(name) = &media.name {
        losses.adapted(path);
        parts.object(|part| part.text("text", name));
    }
    match &media.source {
        MediaSource::Base64 { media_type, data } => parts.object(|part| write_inline(media_type, data, part)),
        MediaSource::Url { url, media_type } => {
            let media_type: &str = match (media_type, type_by_ending(url)) {
                (Some(stated), _) => stated.as_ref(),
                (None, Some(likely)) => {
                    losses.adapted(path);
                    likely
                }
                (None, None) => {
                    let reason = "this model's provider needs the media type of a file at a URL, which the URL's ending does not show; \
                                  send the file's content";
                    return Err(Untranslatable::new(path, reason));
                }
            };
            parts.object(|part| {
                part.object("fileData", |file| {
                    file.text("mimeType", media_type);
                    file.text("fileUri", url);
                });
            });
        }
    }
    Ok(())
}

/// Writes bytes in base64 as the content of a part.
pub(super) fn write_inline(media_type: &str, data: &str, part: &mut JsonObjectWriter<'_>) {
    part.object("inlineData", |inline| {
        inline.text("mimeType", media_type);
        inline.text("data", data);
    });
}

/// Returns the media type for the file extension of a URL; `None` if the extension is unknown.
fn type_by_ending(url: &str) -> Option<&'static str> {
    let address = url.split(['?', '#']).next()?;
    let (_, behind_scheme) = address.split_once("://")?;
    let (_, path) = behind_scheme.split_once('/')?;
    let file = path.rsplit('/').next()?;
    let (_, ending) = file.rsplit_once('.')?;
    let ending = ending.to_ascii_lowercase();
    let known = TYPES_BY_ENDING.iter().find(|(known, _)| *known == ending);
    known.map(|(_, media_type)| *media_type)
}
