#!/usr/bin/env bash
# Runs every test: with cargo-nextest where it is installed, with cargo test otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."

if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --workspace --locked "$@"
else
  cargo test --workspace --locked "$@"
fi
