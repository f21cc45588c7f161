# Auspex: `make run` shows it at work, `make test` passes. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
BIN := bin
PKG ?= ./...
FLAGS ?=
DATA ?= .auspex
export CGO_ENABLED ?= 0

.PHONY: help build agent agent-package run test race chaos hardware invariants lint generate bench e2e ui clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

need-go:
	@command -v $(GO) >/dev/null || { echo "auspex: Go 1.26.7 or newer is missing; get it from https://go.dev/dl"; exit 1; }

build: need-go ## build bin/auspex
	@$(GO) build -trimpath -o $(BIN)/auspex ./cmd/auspex

agent: need-go ## build bin/auspex-agent, the process for GPU servers (reads GPUs if there is gcc)
	@if command -v $${CC:-gcc} >/dev/null; then cgo=1; else cgo=0; echo "auspex-agent: without gcc it is built to read no GPUs (NVML needs cgo)"; fi; \
	CGO_ENABLED=$$cgo CGO_LDFLAGS="-O2 -g -Wl,-z,lazy" $(GO) build -trimpath -tags dcgm -o $(BIN)/auspex-agent ./cmd/auspex-agent

agent-package: agent ## make a Debian package of it in dist/
	@deploy/agent/package.sh $(BIN)/auspex-agent "$$(git describe --tags --always --dirty 2>/dev/null | sed 's/^[^0-9]*//' | grep -E '^[0-9]+\.' || echo 0.0.0)" dist

run: build ## show the whole thing at work on a simulated fleet
	@$(BIN)/auspex run --demo --data $(DATA) $(FLAGS)

test: need-go ## run the tests
	@GO=$(GO) test/gotest.sh $(AT_ONCE) -timeout 30m -- $(PKG)
	@$(MAKE) --no-print-directory invariants

invariants: need-go # what `go list` shows escapes the cache of tests
	@$(GO) test -count=1 ./internal/arch

# Many tests wait for what happens in its own time: more of them at once than there are cores keep these busy.
AT_ONCE := -p $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 ))) -parallel $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 2 )))
# SQLite is C put into Go, on memory of its own that the race detector cannot follow: watching it took two thirds of
# the time. What calls it, the driver too, is watched.
UNWATCHED := -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false

race: need-go ## run the tests under the race detector, without the browser (needs gcc)
	@CGO_ENABLED=1 GO=$(GO) test/gotest.sh -race -short -tags dcgm $(UNWATCHED) $(AT_ONCE) -timeout 30m -- $(PKG)

chaos: need-go ## prove control: every order of two controllers, then 1,000 runs in which they are killed
	@AUSPEX_EXHAUSTIVE=1 AUSPEX_CHAOS_RUNS=$${AUSPEX_CHAOS_RUNS:-1000} AUSPEX_POSTGRES_CHAOS_RUNS=$${AUSPEX_POSTGRES_CHAOS_RUNS:-100} \
	AUSPEX_KUBERNETES_CHAOS_RUNS=$${AUSPEX_KUBERNETES_CHAOS_RUNS:-20} $(GO) test -count=1 -timeout 6h -v -run 'TestEveryInterleaving|TestTheCheck|TestChaos' ./control ./control/kubernetes ./control/tinkerbell

hardware: need-go ## on a machine with NVIDIA GPUs: compare what the agent tells with nvidia-smi, have them work, write down what they answer
	@mkdir -p $(BIN)/hardware
	@AUSPEX_HARDWARE=$(CURDIR)/$(BIN)/hardware CGO_ENABLED=1 $(GO) test -count=1 -v -tags dcgm -run 'OfThisMachine' ./agent/nvml ./cmd/auspex-agent

$(BIN)/golangci-lint: tools/lint/go.mod
	@cd tools/lint && $(GO) build -o ../../$(BIN)/ tool
$(BIN)/buf: tools/buf/go.mod
	@cd tools/buf && $(GO) build -o ../../$(BIN)/ tool
$(BIN)/oapi-codegen: tools/gen/go.mod
	@cd tools/gen && $(GO) build -o ../../$(BIN)/ tool

lint: $(BIN)/golangci-lint ## check style and the rules of .golangci.yml
	@$(BIN)/golangci-lint run
	@$(GO) test -count=1 ./schemas/openapi # the rules of the OpenAPI document
	@if command -v $${CC:-gcc} >/dev/null; then CGO_ENABLED=1 $(BIN)/golangci-lint run --build-tags dcgm ./agent/nvml/... ./agent/dcgm/...; fi

generate: $(BIN)/buf $(BIN)/oapi-codegen ## write the generated code anew
	@cd schemas && ../$(BIN)/buf generate
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(GO) generate ./...

bench: build ## measure, and print one JSON object a scenario
	@$(BIN)/auspex bench $(FLAGS)

e2e: build ## run against real peers (Kafka, ipmi_sim, Slurm, Alertmanager, PostgreSQL, Chromium, ...)
	@./test/e2e.sh

ui: ## build the web UI from its sources (needs npm once)
	@$(GO) generate ./api/ui

clean: ## remove what runs and builds left, the engine's library too
	@pid=$$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' $(DATA)/sim/endpoints.json 2>/dev/null); \
	if [ -n "$$pid" ] && grep -qs simulate /proc/$$pid/cmdline; then kill $$pid; sleep 1; fi
	@rm -rf $(BIN) $(DATA) dist ui/node_modules "$${XDG_CACHE_HOME:-$$HOME/.cache}/auspex"
