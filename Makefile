# One environment for all of it: .venv, made from requirements.lock when first needed.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test ui-test integrations check wheels docs bench quality learn soak lock
unexport PYTHONPATH PYTHONHOME
# Thousands of processes are started: each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
FULL ?=
PIPELINE ?=
PEERS ?=
BENCH := $(PY) -m bench
ARGS :=
SPLIT ?= dev
COVER ?=
SOAK ?= 100
# One worker more than cores: some tests wait for other processes.
TEST_WORKERS = $(or $(WORKERS),$$($(PY) -c "import os; print((os.cpu_count() or 1) + 1)"))

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-12s %s\n' "$$name" "$$what"; done

setup: ## make or refresh .venv (every other target does it)
	@sh scripts/setup.sh
	@$(if $(filter setup,$(MAKECMDGOALS)),echo 'heedful is ready; to type its commands: . .venv/bin/activate',:)

demo: setup ## the demonstration on a real small model; FULL=1 for all of it, PIPELINE=1 for stages
	@.venv/bin/heedful demo $(if $(filter-out 0,$(FULL)),--full) $(if $(filter-out 0,$(PIPELINE)),--pipeline) $(ARGS)

test: setup ## the tests; ARGS='-k name' for some; of all, COVER=1 keeps the coverage for make check
	@$(PY) -m pytest --numprocesses $(TEST_WORKERS) --dist worksteal $(if $(ARGS),$(ARGS),$(if $(filter-out 0,$(COVER)),--cov --cov-report=))

# ATTACKS=file.jsonl.gz adds texts that must not run; NODE_MODULES names another folder of modules.
ui-test: setup ## the pages in Chromium, on both engines; it says what to install
	@PYTHONPATH=. $(PY) scripts/browser.py $(ARGS)

# Frameworks change every week, so they are not in the lock.
integrations: setup ## packages/heedful-frameworks/tests/integrations with the newest frameworks, in .venv-integrations
	@PYTHON="$${PYTHON:-$(PY)}" sh scripts/integrations.sh $(ARGS)

check: setup ## style, types, imports, docs, coverage, budgets; ARGS='name …' for some; COVER=1: coverage must be there
	@COVER='$(filter-out 0,$(COVER))' $(PY) scripts/check.py $(ARGS)

# It installs the newest releases of all that heedful needs, unlocked. ARGS=--write for docs/installed.md.
wheels: setup ## build sdist and wheel, and try them in empty environments
	@$(PY) -m scripts.strangers $(ARGS)

docs: setup ## the docs as a site in build/docs; a broken link fails
	@$(PY) -m scripts.docs_site

bench: setup ## the benchmarks; PEERS=1 beside other libraries, each in an environment in .venv-peers
	@$(BENCH)$(if $(filter-out 0,$(PEERS)),.peers) $(ARGS)

quality: setup ## measured quality: DATA=folder [SPLIT=dev] [ONLY=name] [LIMIT=tasks] [MODELS=0.5b,1.5b] [WORKERS=2] [ARGS=…]
	@$(BENCH).quality --data '$(DATA)' --split '$(SPLIT)' $(if $(ONLY),--only '$(ONLY)') \
		$(if $(LIMIT),--limit '$(LIMIT)') $(if $(MODEL)$(MODELS),--models '$(or $(MODEL),$(MODELS))') $(if $(ANSWERS),--answers '$(ANSWERS)') \
		$(if $(STREAMS),--streams '$(STREAMS)') $(if $(ARMS),--arms '$(ARMS)') $(if $(ORDERS),--orders '$(ORDERS)') $(if $(WORKERS),--workers '$(WORKERS)') \
		$(if $(PRICE_IN),--price-in '$(PRICE_IN)') $(if $(PRICE_OUT),--price-out '$(PRICE_OUT)') $(if $(LIMIT_USD),--limit-usd '$(LIMIT_USD)') \
		$(if $(filter-out 0,$(REPLAY)),--replay) $(if $(filter-out 0,$(EXPORT)),--export) $(ARGS)

# Every answer is kept in ANSWERS, by default ~/.cache/heedful-bench; EXPORT=1 commits those of a run, and REPLAY=1 reads them.
learn: ## quality ONLY=learn, hours on a real model [MODEL=openai:NAME] [STREAMS=geo,…] [ARMS=ours,…]; stop it with Ctrl-C, the next run goes on
	@$(MAKE) --no-print-directory quality ONLY=learn

# The long runs look at the machine, so each runs alone. pytest exits with 5 where nothing is selected.
soak: setup ## what make test leaves out, and the long runs at SOAK times their length, for docs/appendix/reliability.md
	@export HEEDFUL_SOAK='$(SOAK)'; \
	echo '1 of 2: what make test leaves out'; \
	$(PY) -m pytest --numprocesses $(TEST_WORKERS) --dist worksteal -m 'nightly and not soak' $(ARGS); tables=$$?; \
	echo '2 of 2: the long runs, one at a time'; \
	$(PY) -m pytest -v -m soak $(ARGS); runs=$$?; \
	$(if $(filter-out 1,$(SOAK)),$(PY) -m scripts.reliability;) \
	case $$tables$$runs in 00|05|50) ;; *) exit 1 ;; esac

# Without the environment, which a lock that is wrong could not make.
lock: ## write requirements.lock again from pyproject.toml, with the newest releases
	@$(or $(PYTHON),python3) -m scripts.lock
