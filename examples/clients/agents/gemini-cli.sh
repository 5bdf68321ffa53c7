#!/bin/sh
# Gemini CLI through weir, headless: the answer as it comes and its usage, one JSON object per line.
set -eu

export GOOGLE_GEMINI_BASE_URL="$WEIR_URL"
export GEMINI_API_KEY="$WEIR_KEY"
# With a base URL it has to be told that it logs in with a key. In a terminal choose "Use Gemini API Key" once instead, or
# put these settings into ~/.gemini/settings.json.
GEMINI_CLI_SYSTEM_SETTINGS_PATH="$(cd "$(dirname "$0")" && pwd)/gemini-settings.json"
export GEMINI_CLI_SYSTEM_SETTINGS_PATH

# Headless, it refuses a folder that is not trusted.
exec gemini --skip-trust --model "${WEIR_MODEL:-gemini-3.8-flash}" --output-format stream-json \
  --prompt "${1:-Tell me about rivers.}"
