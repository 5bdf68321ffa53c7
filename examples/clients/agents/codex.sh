#!/bin/sh
# Codex through weir, headless: the answer and its usage, one JSON object per line. Before: append codex-config.toml to
# ~/.codex/config.toml, which says what weir is. The key is read from WEIR_KEY; the address there is replaced here.
set -eu

exec codex exec --json --skip-git-repo-check --model "${WEIR_MODEL:-gpt-5.6-sol}" \
  --config model_provider=weir --config "model_providers.weir.base_url=\"$WEIR_URL/v1\"" "${1:-Tell me about rivers.}"
