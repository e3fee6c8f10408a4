# Everything starts here; the work is done in scripts/.
# PROFILE: the cargo profile. `up` and `build` use quick, which compiles in minutes; `image` and `bench` use release.
BUILD_PROFILE := $(or $(PROFILE),quick)
CARGO_TARGET_DIR ?= $(CURDIR)/target
CLUSTER := $(CARGO_TARGET_DIR)/cluster
BINARY := $(CARGO_TARGET_DIR)/$(if $(filter dev,$(BUILD_PROFILE)),debug,$(BUILD_PROFILE))/quarry
LOCKED := $(if $(filter true,$(CI)),--locked)
export PROFILE CARGO_TARGET_DIR IMAGE TAG TIERS FULL

.DEFAULT_GOAL := help
.PHONY: help up build test lint audit mutants bench image cluster cluster-down setup

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

up: build ## build, then run Quarry standalone with a demo (PROFILE=dev, release)
	@$(BINARY) up --demo

build: ## set up what the build needs, and build the binary (PROFILE=dev, release)
	@scripts/setup $(if $(filter 0,$(shell id -u)),debs,build) crates
	@cargo build $(LOCKED) --profile $(BUILD_PROFILE) -p quarry

test: ## set up, run every tier, print a table (TIERS="unit disk guest services cluster" are all, FULL=1 for the long versions)
	@scripts/test-tiers

lint: ## rustfmt, clippy, cargo-deny
	@scripts/setup build crates
	cargo fmt --all --check
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings
	@PATH="$$(scripts/setup tools):$$PATH" && set -x && cargo deny $(LOCKED) check bans licenses sources

audit: ## known vulnerabilities in dependencies (downloads the advisory database)
	@scripts/setup advisories
	@PATH="$$(scripts/setup tools):$$PATH" && set -x && cargo deny $(LOCKED) check --disable-fetch advisories

mutants: ## change the safety code in every small way: a test must notice (long; FILES=... for some)
	@scripts/mutants $(FILES)

bench: ## measure Quarry beside the bare commands
	@scripts/bench

image: ## target/image/quarry.tar, for `ctr images import` (IMAGE, TAG, PROFILE=dev)
	@scripts/setup debs
	@scripts/image quarry

cluster: ## start a real cluster to develop against, with our image in it
	@scripts/cluster up $(CLUSTER)

cluster-down: ## stop it
	@scripts/cluster down $(CLUSTER)

setup: ## all set-up at once: packages, crates, the cluster's binaries, guests, Ironic, tools
	@scripts/setup all
