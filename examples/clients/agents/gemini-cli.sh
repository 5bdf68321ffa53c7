#!/bin/sh
# Runs Gemini CLI through weir without its user interface. Prints the streamed answer and its usage, one JSON object per line.
set -eu

export GOOGLE_GEMINI_BASE_URL="$WEIR_URL"
export GEMINI_API_KEY="$WEIR_KEY"
# With a base URL, Gemini CLI uses a key only if its settings say so. Existing settings are not changed.
settings="$HOME/.gemini/settings.json"
if [ ! -e "$settings" ]; then
  mkdir -p "$HOME/.gemini"
  cp "$(dirname "$0")/gemini-settings.json" "$settings"
fi

# Without its user interface, Gemini CLI refuses a folder that is not trusted, unless --skip-trust is given.
exec gemini --skip-trust --model "${WEIR_MODEL:-gemini-3.8-flash}" --output-format stream-json \
  --prompt "${1:-Tell me about rivers.}"
