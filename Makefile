# Everything starts here; the work is done in scripts/.
PROFILE ?= release
CARGO_TARGET_DIR ?= $(CURDIR)/target
CLUSTER := $(CARGO_TARGET_DIR)/cluster
BINARY := $(CARGO_TARGET_DIR)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/quarry
LOCKED := $(if $(filter true,$(CI)),--locked)
export PROFILE CARGO_TARGET_DIR IMAGE TAG TIERS

.DEFAULT_GOAL := help
.PHONY: help up build test lint audit mutants bench image cluster cluster-down setup

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

up: build ## build, then run Quarry standalone with a demo (PROFILE=dev builds faster)
	@$(BINARY) up --demo

build: ## set up what the build needs, and build the binary
	@scripts/setup $(if $(filter 0,$(shell id -u)),debs,build)
	@cargo build $(LOCKED) $(if $(filter dev,$(PROFILE)),,--profile $(PROFILE)) -p quarry

test: ## set up, run every tier, print a table (TIERS="unit disk" for some)
	@scripts/test-tiers

lint: ## rustfmt, clippy, cargo-deny
	@scripts/setup build
	cargo fmt --all --check
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings
	@PATH="$$(scripts/setup tools):$$PATH" && set -x && cargo deny $(LOCKED) check bans licenses sources

audit: ## known vulnerabilities in what we depend on (fetches the advisory database)
	@PATH="$$(scripts/setup tools):$$PATH" && set -x && cargo deny $(LOCKED) check advisories

mutants: ## change the safety code in every small way: a test must notice (long; FILES=... for some)
	@scripts/mutants $(FILES)

bench: ## the figures, beside the peer's
	@scripts/bench

image: ## target/image/quarry.tar, for `ctr images import` (IMAGE, TAG, PROFILE=dev)
	@scripts/setup debs
	@scripts/image quarry

cluster: ## a real cluster to develop against, with our image in it
	@scripts/cluster up $(CLUSTER)

cluster-down: ## end it
	@scripts/cluster down $(CLUSTER)

setup: ## all set-up at once: packages, the cluster's binaries, tools
	@scripts/setup all
