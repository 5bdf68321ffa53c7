#!/bin/sh
# Runs Claude Code through weir without its user interface. Prints the streamed answer and its usage, one JSON object per line.
# In a terminal, `claude` needs only the two exports.
set -eu

export ANTHROPIC_BASE_URL="$WEIR_URL"
export ANTHROPIC_AUTH_TOKEN="$WEIR_KEY"

exec claude --print --model "${WEIR_MODEL:-claude-opus-5-5}" \
  --output-format stream-json --include-partial-messages --verbose "${1:-Tell me about rivers.}"
