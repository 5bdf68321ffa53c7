//! Reads images, documents, audio and video.

use std::{borrow::Cow, iter::repeat_n};

use crate::domain::{
    translation::{
        conversation::{MediaContent, MediaKind, MediaSource},
        losses::Untranslatable,
        read::{STORED_FILE, gemini::object::GeminiObject},
    },
    wire::provider_state::is_in_provider_store,
};

/// The file extensions of images.
const IMAGE_ENDINGS: [&str; 8] = ["png", "jpg", "jpeg", "gif", "webp", "heic", "heif", "bmp"];
/// The file extensions of audio.
const AUDIO_ENDINGS: [&str; 7] = ["mp3", "wav", "aac", "ogg", "flac", "m4a", "aiff"];
/// The file extensions of video.
const VIDEO_ENDINGS: [&str; 9] = ["mp4", "mov", "mpeg", "mpg", "webm", "avi", "wmv", "flv", "3gp"];
/// The prefixes of the URLs of videos that Google's models accept without a media type.
const VIDEO_SITES: [&str; 3] = ["https://www.youtube.com/", "https://youtube.com/", "https://youtu.be/"];

/// Takes the media of a part: inline bytes, or the URL of a publicly readable file.
///
/// # Errors
/// The media is incomplete, or is stored at a provider.
pub(super) fn take_media<'a>(part: &mut GeminiObject<'a>) -> Result<Option<MediaContent<'a>>, Untranslatable> {
    if let Some(mut inline) = part.object("inlineData")? {
        let media_type = inline.required_text("mimeType")?;
        let data = standard_base64(inline.required_text("data")?);
        let name = inline.text("displayName")?;
        inline.finish_content()?;
        return Ok(Some(MediaContent {
            kind: media_kind(&media_type),
            source: MediaSource::Base64 { media_type, data },
            name,
        }));
    }
    let Some(mut file) = part.object("fileData")? else {
        return Ok(None);
    };
    let path = file.path_of("fileUri");
    let url = file.required_text("fileUri")?;
    if is_in_provider_store(&url) {
        return Err(Untranslatable::new(path, STORED_FILE));
    }
    let media_type = file.text("mimeType")?.filter(|media_type| !media_type.is_empty());
    let name = file.text("displayName")?;
    file.finish_content()?;
    let kind = match &media_type {
        Some(media_type) => media_kind(media_type),
        None => url_kind(&url),
    };
    Ok(Some(MediaContent {
        kind,
        source: MediaSource::Url { url, media_type },
        name,
    }))
}

fn media_kind(media_type: &str) -> MediaKind {
    let (family, _) = media_type.split_once('/').unwrap_or((media_type, ""));
    match family.to_ascii_lowercase().as_str() {
        "image" => MediaKind::Image,
        "audio" => MediaKind::Audio,
        "video" => MediaKind::Video,
        _ => MediaKind::Document,
    }
}

/// Returns the kind of the media at a URL that has no media type.
fn url_kind(url: &str) -> MediaKind {
    let (path, _) = url.split_once(['?', '#']).unwrap_or((url, ""));
    let (_, ending) = path.rsplit_once('.').unwrap_or(("", ""));
    let ending = ending.to_ascii_lowercase();
    let ending = ending.as_str();
    if IMAGE_ENDINGS.contains(&ending) {
        MediaKind::Image
    } else if AUDIO_ENDINGS.contains(&ending) {
        MediaKind::Audio
    } else if VIDEO_ENDINGS.contains(&ending) || VIDEO_SITES.iter().any(|site| url.starts_with(site)) {
        MediaKind::Video
    } else {
        MediaKind::Document
    }
}

/// Returns bytes in standard base64 with padding. Google also accepts the URL-safe alphabet, which its Python SDK writes, and
/// missing padding.
fn standard_base64(data: Cow<'_, str>) -> Cow<'_, str> {
    let is_for_urls = memchr::memchr2(b'-', b'_', data.as_bytes()).is_some();
    let missing = match (data.ends_with('='), data.len() % 4) {
        (false, 2) => 2,
        (false, 3) => 1,
        _ => 0,
    };
    if !is_for_urls && missing == 0 {
        return data;
    }
    let mut standard = String::with_capacity(data.len() + missing);
    standard.extend(data.chars().map(|character| match character {
        '-' => '+',
        '_' => '/',
        other => other,
    }));
    standard.extend(repeat_n('=', missing));
    Cow::Owned(standard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_for_urls_becomes_the_standard_form() {
        for (data, expected) in [
            ("aGk=", "aGk="),
            ("aGk", "aGk="),
            ("-_-_", "+/+/"),
            ("_w", "/w=="),
            ("", ""),
        ] {
            assert_eq!(standard_base64(data.into()), expected);
        }
    }

    #[test]
    fn the_ending_tells_the_kind_of_a_file_without_a_type() {
        for (url, expected) in [
            ("https://x/a.PNG?size=1.5", MediaKind::Image),
            ("https://x/a.mp3", MediaKind::Audio),
            ("https://x/a.mp4#t=1", MediaKind::Video),
            ("https://www.youtube.com/watch?v=1", MediaKind::Video),
            ("https://x/a", MediaKind::Document),
        ] {
            assert_eq!(url_kind(url), expected, "{url}");
        }
    }
}
