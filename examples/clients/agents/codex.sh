#!/bin/sh
# Runs Codex through weir without its user interface. Prints the answer and its usage, one JSON object per line. First append
# codex-config.toml to ~/.codex/config.toml. Codex reads the key from WEIR_KEY. This script replaces the address in that file.
set -eu

exec codex exec --json --skip-git-repo-check --model "${WEIR_MODEL:-gpt-5.6-sol}" \
  --config model_provider=weir --config "model_providers.weir.base_url=\"$WEIR_URL/v1\"" "${1:-Tell me about rivers.}"
