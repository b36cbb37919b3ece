# Everything that people and CI do here; `make` lists it. It needs Go, git and, for the
# race detector, a C compiler.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The version must look like one of Kubernetes: the metrics library reads it.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*.[0-9]*.[0-9]*' --dirty 2>/dev/null || \
	echo "v0.0.0-$$(git rev-list --count HEAD 2>/dev/null || echo 0)")
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
TREE ?= $(shell test -n "$$(git status --porcelain 2>/dev/null)" && echo dirty || echo clean)
DATE ?= $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || echo 1970-01-01T00:00:00Z)

version_package := k8s.io/component-base/version
LDFLAGS ?= -s -w \
	-X $(version_package).gitVersion=$(VERSION) \
	-X $(version_package).gitCommit=$(COMMIT) \
	-X $(version_package).gitTreeState=$(TREE) \
	-X $(version_package).buildDate=$(DATE)

# For example: make test-e2e RUN=TestLeader TESTFLAGS=-v
RUN ?=
TESTFLAGS ?=
FUZZTIME ?= 10s

# All programs and tests are compiled with the flags of hack/build.env. Its GOGC is for the
# compiler; unit tests also get it, because they spend a sixth of their processor time on
# garbage otherwise.
build_flag = $(shell . hack/build.env && echo "$${$(1)}")
CGO_ENABLED ?= $(call build_flag,CGO_ENABLED)
GOFLAGS ?= $(call build_flag,GOFLAGS)
GOWORK ?= $(call build_flag,GOWORK)
export CGO_ENABLED GOFLAGS GOWORK
build cluster local-cluster test test-race: export GOGC ?= $(call build_flag,GOGC)
test test-race: export GOMEMLIMIT ?= 2GiB

# The packages that are tested without a cluster, besides the root.
packages = $(patsubst %,./%/...,$(wildcard apps pkg examples))

# The names of the programs next to the Icecream controller.
apps = $(notdir $(wildcard apps/*))

# go test in a directory, and then the slowest tests.
go_test = hack/test.sh $(1) $(if $(RUN),-run '$(RUN)') $(TESTFLAGS)

##@ Everyday

.PHONY: help
help: ## List what can be made
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the programs: the Icecream controller here, those of apps in dist/
	go build -ldflags '$(LDFLAGS)' -o controller .
	$(if $(apps),go build -ldflags '$(LDFLAGS)' -o dist/ ./apps/...)

.PHONY: generate
generate: ## Regenerate what follows from the API types
	hack/update-codegen.sh
	hack/update-manifests.sh

.PHONY: fmt
fmt: ## Format all Go files
	"$$(hack/tool.sh golangci-lint)" fmt

.PHONY: lint
lint: ## Run golangci-lint on all Go files
	hack/verify-lint.sh

.PHONY: verify
verify: ## The gate before a commit: generated files, modules, links, manifests, scripts, lint
	hack/verify.sh

.PHONY: vulncheck
vulncheck: ## Known vulnerabilities in what is called, where the Go team's database can be reached
	hack/vulncheck.sh

.PHONY: check
check: verify test ## The gate before a change is sent: verify, and test

.PHONY: clean
clean: ## Remove what was built here (caches stay)
	rm -rf controller hack/local-cluster/local-cluster dist

##@ Tests (RUN=regexp selects, TESTFLAGS adds flags)

# vet would look at all of Kubernetes' libraries as well; make lint has it for our own code.
# The seeds of the simulation are always the same, so what has not changed is not run again.
.PHONY: test
test: ## Unit, property and simulation tests; no cluster, no C compiler
	SIM_SEEDS=$(or $(SIM_SEEDS),200) go test -vet=off $(if $(RUN),-run '$(RUN)') $(TESTFLAGS) . $(packages) ./hack/...
	go -C hack/local-cluster test -vet=off $(if $(RUN),-run '$(RUN)') $(TESTFLAGS) ./internal/...

.PHONY: test-all
test-all: test test-side-by-side test-e2e ## All of them

# Each of these leaves a part of two cores idle; test-e2e does not.
.PHONY: test-side-by-side
test-side-by-side: ## Most of them, four at a time
	$(MAKE) --jobs=4 $(if $(filter output-sync,$(.FEATURES)),--output-sync) \
		test-api test-remove test-new test-race test-install test-local-cluster test-monitoring

.PHONY: test-race
test-race: ## Tests that need no cluster, with the race detector
	SIM_SEEDS=10 $(call go_test,.) -race -timeout 20m . $(packages)
	$(call go_test,test) -race $$(go list -C test ./... | grep -v -e /e2e -e /apichange -e /fidelity -e /monitoring)

.PHONY: test-local-cluster
test-local-cluster: local-cluster ## Tests of the local cluster
	$(call go_test,hack/local-cluster) -race -timeout 15m ./...

# The tests are built without the race detector, and the programs that they test with it. Each of two packages at a time
# has several clusters.
.PHONY: test-e2e
test-e2e: local-cluster ## Tests of the controllers on a local cluster
	$(call go_test,test) -count=1 -p 2 -timeout 30m $$(go list -C test ./... | grep -e /e2e -e /fidelity)

.PHONY: test-install
test-install: local-cluster ## Install from install.yaml, a kustomization and the chart on a local cluster
	$(call go_test,hack/tools) -count=1 -timeout 15m ./charts/install

.PHONY: test-monitoring
test-monitoring: local-cluster ## Tests of alerts, dashboard and scrape
	$(call go_test,test) -count=1 ./monitoring

.PHONY: test-new
test-new: local-cluster ## Make a repository with hack/new, as an author does, and run it on a local cluster
	$(call go_test,.) -count=1 -timeout 20m -run TestNew ./hack/new -new

comma := ,
space := $(subst ,, )
REMOVE ?= $(subst $(space),$(comma),$(apps))

.PHONY: test-remove
test-remove: ## Remove programs (REMOVE="a b" in a clone each, a,b together; all) and test what is left
	$(call go_test,.) -count=1 -timeout 3h -run TestRemove ./hack -remove='$(REMOVE)'

.PHONY: test-api
test-api: local-cluster ## Change the API as docs/change-the-api.md says, in a clone, on a local cluster
	$(call go_test,test) -count=1 -timeout 60m ./apichange

# For example: make fidelity REQUESTS=20000
REQUESTS ?= 100000

.PHONY: fidelity
fidelity: local-cluster ## Compare the model of the API server with a real one, by REQUESTS random requests
	go -C test test -count=1 -timeout 3h -v ./fidelity -requests=$(REQUESTS)

# Two tables. Each takes about 20 minutes.
.PHONY: bench
bench: local-cluster ## Measure the controller next to a baseline on controller-runtime
	go -C test run ./bench
	go -C test run ./bench -synthetic

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (10s)
	@for package in $$(go list . $(packages)); do \
		for target in $$(go test -list '^Fuzz' "$${package}" | grep '^Fuzz' || true); do \
			echo "$${package} $${target}"; \
			go test -run '^$$' -fuzz "^$${target}$$" -fuzztime $(FUZZTIME) "$${package}"; \
		done; \
	done

.PHONY: simulate
simulate: ## Run new seeds of TestSimulation on all cores, each controller for a time (FOR=15m)
	hack/simulate.sh $(or $(FOR),15m)

.PHONY: mutants
mutants: ## See whether the simulation finds mistakes that are made on purpose (SEEDS=2000)
	go run ./hack/mutants -seeds=$(or $(SEEDS),2000)

##@ Images and releases

# The scripts read from the environment what to build; PLATFORMS selects for which systems.
image test-image release: export VERSION := $(VERSION)
image test-image release: export COMMIT := $(COMMIT)
image test-image: export DATE := $(DATE)
image test-image release: export LDFLAGS := $(LDFLAGS)
image test-image: export PROGRAM ?= .
image: export IMAGE ?= registry.nicoleh.io/$(if $(filter .,$(PROGRAM)),k8s-controller,$(notdir $(PROGRAM))):$(VERSION)

.PHONY: image
image: ## Build a container image with docker or buildah (PROGRAM=apps/NAME, IMAGE, PLATFORMS, PUSH=1, IMAGEFLAGS)
	hack/image.sh $(IMAGEFLAGS)

.PHONY: test-image
test-image: ## Build an image (PROGRAM) with buildah, and look at what came out
	hack/test-image.sh

.PHONY: release
release: ## Binaries, checksums and bills of materials in dist/ (PLATFORMS)
	hack/release.sh

.PHONY: test-release
test-release: ## Make a release twice, and compare
	hack/test-release.sh

##@ Clusters

.PHONY: demo
demo: ## Show the controller at work on a local cluster (ONCE=1: then end)
	hack/demo.sh

.PHONY: picture
picture: ## Draw docs/demo.svg from a run of the demo (VERIFY=1: compare)
	ONCE=1 hack/demo.sh | hack/demo-picture.sh $(if $(VERIFY),--verify)

.PHONY: cluster
cluster: ## Run a local cluster until Ctrl-C (CLUSTERFLAGS="--dir /tmp/try")
	go -C hack/local-cluster run -ldflags=-w . up $(CLUSTERFLAGS)

.PHONY: local-cluster
local-cluster: ## Build the local cluster's control plane: minutes, once
	go -C hack/local-cluster run -ldflags=-w . build
