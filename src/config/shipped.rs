//! `conf/weir.toml`, made of the declarations.

use super::Config;
use crate::domain::settings::{
    Settings,
    page::{at_start, page},
};

const HEAD: &str = r#"# The configuration of weir. Every key is optional; what stands behind `#` without a space is a key at its default,
# and "no default" marks an example of a key that is unset otherwise. Units are in the names: _ms, _seconds, _bytes.
# "1 to 1024." at the end of a comment: the key takes no number below 1 or above 1024.
#
#   weir check --conf conf/weir.toml     names every mistake with file, line and key
#   weir serve --conf conf/weir.toml     serves
#
# A running weir loads this file anew when it changes, or on SIGHUP: as a whole, or not at all. Some settings take effect
# with the next start or `weir upgrade` only (the log names each that was changed):
{at_start}# and whether a listener has certificates; which ones may change at any time.
#
# Relative paths are relative to the folder of this file. Secrets never stand here, only where they are found:
#   "env:NAME"          an environment variable
#   "file:PATH"         a file
#   "credential:NAME"   a systemd credential (LoadCredential= in the unit)
# The shipped providers look for ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, DEEPSEEK_API_KEY, MIMO_API_KEY,
# MINIMAX_API_KEY, MOONSHOT_API_KEY, ZAI_API_KEY and DASHSCOPE_API_KEY in the environment. A provider whose secret is
# absent or empty is off, which is no error. A provider's secret has 12 characters at least.
#
# To try weir, export one of these and use this file as it is: four paths below, marked "for trying out", keep its data beside
# this file. As a service weir wants it without those four lines, because their defaults are the folders of the unit; so the
# Debian package has it, with the providers' secrets in /etc/weir/credentials.
#
# This file is made of src/config: WEIR_WRITE=1 cargo test --lib -- the_shipped_file_is_made_of_the_declarations
"#;

const CHAPTERS: [(&str, &str); 6] = [
    ("gateway", "clients"),
    ("upstream", "providers"),
    ("store", "keys"),
    ("money", "money"),
    ("ops", "operation"),
    ("rules", "models"),
];

/// The file as it is to be.
pub(super) fn made() -> String {
    let told = Config::describe_keys();
    page(&HEAD.replace("{at_start}", &at_start(&told)), &CHAPTERS, &told)
}
