# Needs Python 3.11 or newer and make, nothing else. `make help` lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Passed on: make demo DEMO_ARGS="--seconds 20", make bench BENCH_ARGS="--short", make test PYTEST_ARGS="-k cooldown -x".
DEMO_ARGS   ?=
BENCH_ARGS  ?=
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo lint test test-kafka test-services bench bench-peers fuzz soak reference rules format lock screenshots sbom audit clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## the virtual environment .venv, with all that development needs

# The stamp is newer than what decides the environment's content exactly while the environment is up to date.
$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## the whole pipeline on this machine, about a minute
	$(BIN)/heartbeat-stream demo $(DEMO_ARGS)

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Each process starts servers of its own. With the embedded ones a test waits most of the time; Apache
# Kafka takes a core. PARALLEL= (or PARALLEL_HEAVY=) runs one test after the other.
PARALLEL       ?= --numprocesses 3 --dist loadfile
PARALLEL_HEAVY ?= --numprocesses 2 --dist loadfile

test: lint ## lint, and every test that needs no server beyond the embedded ones
	$(BIN)/pytest -m "not kafka and not services" $(PARALLEL) $(PYTEST_ARGS)

# Apache Kafka comes by its Maven coordinates; with HEARTBEAT_TEST_BROKERS set, a cluster that is there is used.
test-kafka: $(STAMP) ## the tests on Apache Kafka (installs Java and Maven where missing, as root)
	@[ -n "$$HEARTBEAT_TEST_BROKERS" ] || .ci/need java:default-jre-headless mvn:maven
	$(BIN)/pytest -m kafka $(PARALLEL_HEAVY) $(PYTEST_ARGS)

# Programs that the tests marked "services" start, with the Debian package of each.
SERVICES = pgbouncer:pgbouncer faketime:faketime prometheus:prometheus pg_createcluster:postgresql chromium:chromium redis-server:redis-server
test-services: $(STAMP) ## the tests on servers from Debian's packages (installs them where missing, as root)
	@.ci/need $(SERVICES)
	PATH="$$PATH:/usr/sbin:/sbin" $(BIN)/pytest -m services $(PARALLEL_HEAVY) $(PYTEST_ARGS)

bench: $(STAMP) ## the benchmarks, about 25 minutes; results in bench/results
	@.ci/need java:default-jre-headless mvn:maven
	@mkdir -p bench/results
	$(BIN)/heartbeat-stream bench --json bench/results/bench.json --chart bench/results/bench.svg $(BENCH_ARGS)

PEERS := $(VENV)-peers
bench-peers: ## what the benchmarks are compared with, in an environment of its own
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt

# Half an hour of load with a fault every minute; SOAK_ARGS="--minutes 5 --seed 7" for another one.
SOAK_ARGS ?=
soak: $(STAMP) ## steady load under faults on Apache Kafka, with a chart and a verdict at the end
	@.ci/need java:default-jre-headless mvn:maven
	$(BIN)/python -m tests.soak.run $(SOAK_ARGS)

# With coverage guidance, by atheris. FUZZ_RUNS: inputs for each of the three targets.
FUZZ_RUNS ?= 1000000
fuzz: $(STAMP) ## a million odd inputs for the decoder, the canonical form and the HTTP routes (Linux on x86-64)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock
	$(BIN)/python -m tests.fuzz.run decoder --runs $(FUZZ_RUNS)
	$(BIN)/python -m tests.fuzz.run canonical --runs $(FUZZ_RUNS)
	$(BIN)/python -m tests.fuzz.run routes --runs $(FUZZ_RUNS)

reference: $(STAMP) ## .env.example, docs/configuration.md and docs/metrics.md anew
	$(BIN)/python -m heartbeat_stream.config.reference .
	$(BIN)/python -m heartbeat_stream.metrics.reference .

# Five minutes. Chromium needs a font with Chinese characters, such as Debian's fonts-noto-cjk.
screenshots: $(STAMP) ## the pictures of the web page in docs/ anew (installs Chromium where missing, as root)
	@.ci/need chromium:chromium
	$(BIN)/python -m tests.support.screenshots docs

RULES = k8s/components/monitoring/prometheus-rule.yaml
rules: $(STAMP) ## the PrometheusRule for Kubernetes anew, from observability/alerts.yaml
	$(BIN)/python observability/prometheus_rule.py > $(RULES).new && mv $(RULES).new $(RULES)

format: $(STAMP) ## bring the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# requirements.lock is what a worker needs; requirements-dev.lock adds the extras, on the same versions;
# requirements-build.lock is what the image is built with, requirements-audit.lock what sbom and audit run.
# uv resolves for every platform at once (--universal), which pip cannot; only this target needs it.
UV_COMPILE = $(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
             --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
lock: ## both lock files anew; LOCK_ARGS="--upgrade" takes newer versions
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.8,<1"
	$(UV_COMPILE) $(LOCK_ARGS) -o requirements.lock pyproject.toml
	$(UV_COMPILE) $(LOCK_ARGS) -o requirements-dev.lock -c requirements.lock --all-extras pyproject.toml
	echo hatchling | $(UV_COMPILE) $(LOCK_ARGS) -o requirements-build.lock -c requirements-dev.lock -
	printf 'cyclonedx-bom>=7,<8\npip-audit>=2.9,<3\n' | $(UV_COMPILE) $(LOCK_ARGS) -o requirements-audit.lock -
	rm -rf $(VENV)-lock

AUDIT := $(VENV)-audit
$(AUDIT)/.installed: requirements-audit.lock
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-audit.lock
	@touch $@

SBOM ?= sbom.cdx.json
sbom: $(AUDIT)/.installed ## a bill of materials of what a worker needs, as CycloneDX JSON
	$(AUDIT)/bin/cyclonedx-py requirements --output-reproducible --output-format JSON --output-file $(SBOM) \
	  --pyproject pyproject.toml --mc-type application requirements.lock
	$(AUDIT)/bin/python -m json.tool $(SBOM) /dev/null

# The advisories are at a service that not every network lets through. --strict: what could not be asked about
# is a failure, and no good news.
AUDIT_ARGS ?=
audit: $(AUDIT)/.installed ## known vulnerabilities in what a worker needs (asks an advisory service)
	$(AUDIT)/bin/pip-audit --strict --require-hashes --disable-pip --requirement requirements.lock $(AUDIT_ARGS)

clean: ## what make and the tests left in this folder, the environment too
	rm -rf $(VENV) $(VENV)-lock $(VENV)-peers $(AUDIT) $(SBOM) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
