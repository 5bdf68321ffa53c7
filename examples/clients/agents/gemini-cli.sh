#!/bin/sh
# Gemini CLI through weir, headless: the answer as it comes and its usage, one JSON object per line.
set -eu

export GOOGLE_GEMINI_BASE_URL="$WEIR_URL"
export GEMINI_API_KEY="$WEIR_KEY"
# With a base URL it has to be told that it logs in with a key. Settings that are there already stay as they are.
settings="$HOME/.gemini/settings.json"
if [ ! -e "$settings" ]; then
  mkdir -p "$HOME/.gemini"
  cp "$(dirname "$0")/gemini-settings.json" "$settings"
fi

# Headless, it refuses a folder that is not trusted.
exec gemini --skip-trust --model "${WEIR_MODEL:-gemini-3.8-flash}" --output-format stream-json \
  --prompt "${1:-Tell me about rivers.}"
