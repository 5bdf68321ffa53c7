//! Generates `conf/weir.toml` from the declarations of the settings.

use crate::config::Config;
use crate::domain::settings::{
    Settings,
    tests::page::{at_start, page},
};

const HEAD: &str = r#"# The configuration of weir. Every setting is optional. A line that begins with `#` without a space is a setting with its default
# value; "no default" marks an example of a setting that is otherwise unset. Units are in the names: _ms, _seconds, _bytes.
# "1 to 1024." at the end of a comment is the range of a number.
#
#   weir check --conf conf/weir.toml     reports every mistake with file, line and setting
#   weir serve --conf conf/weir.toml     serves
#
# A running weir reloads this file when the file changes, or on SIGHUP. If a setting is invalid, the reload changes nothing. Some
# settings take effect only with the next start or `weir upgrade` (when such a setting changes, a log message names it):
{at_start}# and whether a listener has certificates at all. Its certificates can be replaced at any time.
#
# Relative paths are relative to the folder of this file. Secrets are never in this file, only references to them:
#   "env:NAME"          an environment variable
#   "file:PATH"         a file
#   "credential:NAME"   a systemd credential (LoadCredential= in the unit)
# The shipped providers use ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, DEEPSEEK_API_KEY, MIMO_API_KEY,
# MINIMAX_API_KEY, MOONSHOT_API_KEY, ZAI_API_KEY, DASHSCOPE_API_KEY, OPENROUTER_API_KEY, GROQ_API_KEY, CEREBRAS_API_KEY,
# MISTRAL_API_KEY, XAI_API_KEY, TOGETHER_API_KEY and FIREWORKS_API_KEY from the environment. A provider whose secret is
# missing or empty is off, which is not an error. A provider's secret has at least 12 characters.
#
# To try weir, export one of these and use this file as it is: four paths below, marked "for trying out", keep its data beside
# this file. For a service, remove those four lines: the default paths are the folders of the systemd unit. The Debian package
# installs this file without these lines, and keeps the providers' secrets in /etc/weir/credentials.
#
# This file is generated from src/config: WEIR_WRITE=1 cargo test --lib -- the_shipped_file_is_made_of_the_declarations
"#;

const CHAPTERS: [(&str, &str); 6] = [
    ("gateway", "clients"),
    ("upstream", "providers"),
    ("store", "keys"),
    ("money", "money"),
    ("ops", "operation"),
    ("rules", "models"),
];

/// Returns the text of the file.
pub(super) fn made() -> String {
    let told = Config::describe_keys();
    page(&HEAD.replace("{at_start}", &at_start(&told)), &CHAPTERS, &told)
}
