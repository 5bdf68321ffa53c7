//! The requests of `smuggling.toml`, each written out.

use serde::Deserialize;

const FILE: &str = include_str!("smuggling.toml");

/// What stands for the parts of a plain request.
pub(crate) struct Parts<'a> {
    pub(crate) key: &'a str,
    pub(crate) body: &'a str,
    pub(crate) next: &'a str,
}

/// One request.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The status it is refused with; `None` if it is served.
    pub(crate) refused: Option<u16>,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Table {
    case: Vec<Form>,
}

#[derive(Deserialize)]
struct Form {
    name: String,
    refused: Option<u16>,
    form: String,
    values: Vec<String>,
    #[serde(default)]
    controls: bool,
}

/// All of them.
pub(crate) fn all(parts: &Parts<'_>) -> Vec<Case> {
    let table: Table = toml::from_str(FILE).expect("smuggling.toml");
    table.case.into_iter().flat_map(|form| written(form, parts)).collect()
}

fn written(mut form: Form, parts: &Parts<'_>) -> Vec<Case> {
    if form.controls {
        let controls = (0..=31_u8).chain([127]).filter(|byte| !b"\t\r\n".contains(byte));
        form.values.extend(controls.map(|byte| char::from(byte).to_string()));
    }
    let case = |value: &String| {
        let text = form.form.replacen("{}", value, 1);
        let text = text
            .replace("{host}", "host: weir.test\r\n")
            .replace("{key}", &format!("x-api-key: {}\r\n", parts.key))
            .replace("{length}", &parts.body.len().to_string())
            .replace("{size}", &format!("{:x}", parts.body.len()))
            .replace("{body}", parts.body)
            .replace("{next}", parts.next);
        Case {
            name: format!("{}: {value:?}", form.name),
            refused: form.refused,
            bytes: text.into_bytes(),
        }
    };
    form.values.iter().map(case).collect()
}
