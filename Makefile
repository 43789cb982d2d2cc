# Everything a user or developer runs. Each target installs what it needs and is missing.
SHELL := /bin/bash
CARGO_TARGET_DIR ?= target
BIN := $(CARGO_TARGET_DIR)/release/gpuvitals
SAMPLE := samples/fleet.csv.gz
CONFIG := configs/config.yaml

.PHONY: help build agent deb wheel licences dashboard run demo test test-long test-deploy coverage check lint fmt generate bench clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: dashboard ## Build the release binary with the dashboard in it
	@scripts/release

agent: ## Build the small binary of a node alone, target/slim/gpuvitals
	@scripts/release --agent

deb: build ## Build the Debian package, in target/debian
	@scripts/package-deb

wheel: dashboard ## Build the wheel for Python, in target/wheels, and test it
	@scripts/wheel

licences: dashboard ## Others' licences and the bill of materials (CycloneDX), in target/licences
	@scripts/need python3
	@python3 scripts/licences.py target/licences

dashboard: dashboard/dist/index.html ## Build the web page

dashboard/dist/index.html: $(shell find dashboard -type f -not -path 'dashboard/node_modules/*' -not -path 'dashboard/dist/*')
	@scripts/need node
	cd dashboard && { [ -d node_modules ] && [ node_modules -nt package-lock.json ] || npm ci --no-audit --no-fund --loglevel=error; } && npm run --silent build

run: build ## Build, then show the GPUs of this machine, or replay the sample, as configs/config.yaml says
	@timeout 20 $(BIN) --config $(CONFIG) sample -n 1 >/dev/null 2>&1; code=$$?; \
	if [ $$code != 69 ] && [ $$code != 77 ]; then exec $(BIN) --config $(CONFIG) up; fi; \
	echo "no GPU can be sampled here ($(BIN) doctor says why): replaying a recording"; \
	exec $(BIN) --config $(CONFIG) up --csv $(SAMPLE) --times now --loop

demo: build ## Build, then show a simulated fleet of 64 GPUs
	$(BIN) up --source simulated --gpus 64 --hosts 8 --data-dir "$$(mktemp -d)"

test: ## Install what the tests need and run all of them
	@scripts/test

test-long: ## The same with many more rounds, and the soak runs; hours
	@scripts/test-long

test-deploy: build ## Install the Debian package in a root of its own, bring Compose and the pods of the chart up; as root
	@scripts/test-deploy

coverage: ## Line coverage of the Rust code by its tests; long
	@scripts/coverage

check: lint test ## What CI runs

lint: ## Formatting, lints, documentation
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p gpuvitals --no-default-features --features agent --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

fmt: ## Format the Rust code
	cargo fmt --all

generate: ## Refresh generated files (OpenAPI documents, docs, configs/config.yaml unless it was edited, client types, deploy)
	UPDATE=1 cargo test --locked -q -p gpuvitals-core -p gpuvitals-exposition -p gpuvitals-api -p gpuvitals-report -p gpuvitals
	UPDATE=1 cargo test --locked -q -p gpuvitals-queue --test served http::document
	cd dashboard && npm run --silent types
	UPDATE=1 scripts/charts

bench: build ## Compare with what a user would pick instead; prints tables
	@bench/run

clean: ## Remove build output
	cargo clean
	rm -rf dashboard/dist dashboard/node_modules
