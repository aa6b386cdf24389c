# promguard. The two targets a newcomer needs: make run, make test.

BIN      := bin
TREE     := build/prometheus
UI_CACHE := build/webui
PATCHES  := go run ./tools/patches --tree $(TREE)
GO_TOOL  := go tool -modfile=tools/lint.mod
# The same flags everywhere let builds and tests share the compiler's cache, so
# that Prometheus's dependencies are compiled once.
export CGO_ENABLED ?= 0
# The Go release that go.mod names, which the go command fetches if another is
# installed; GOTOOLCHAIN=local builds with the installed one.
export GOTOOLCHAIN ?= $(shell sed -n 's/^toolchain //p' go.mod)
export GOFLAGS := -trimpath -buildvcs=false $(GOFLAGS)

# What make run passes on to the demo: EXPOSITION=FILE|DIR|URL serves a real
# exposition instead of a generated one; ARGS are further flags.
EXPOSITION ?=
ARGS ?=

.DEFAULT_GOAL := build

## build: the patched Prometheus, promguard and the benchmarks, into bin/
.PHONY: build
build: prometheus promguard walreplay oomstorm

## run: a patched Prometheus under load with promguard in front, with the web UI if UI=1 has built it; Ctrl-C stops it
.PHONY: run
run:
	@$(MAKE) prometheus promguard demo UI=$(or $(UI),$(if $(wildcard $(UI_CACHE)/*),1))
	$(BIN)/demo $(if $(EXPOSITION),--exposition='$(EXPOSITION)') $(ARGS)

## prometheus: bin/prometheus and bin/promtool from the patched tree; UI=1 with the web UI, which needs npm
.PHONY: prometheus
prometheus: patches-apply
ifeq ($(UI),1)
	./tools/webui/build.sh $(TREE) $(UI_CACHE)
	$(PATCHES) build --out $(BIN) --tags netgo,builtinassets
else
	$(PATCHES) build --out $(BIN) --tags netgo
	@echo "without the web UI: make prometheus UI=1 embeds it and needs npm"
endif

## stock: upstream's own binaries into bin/stock/, to compare with
.PHONY: stock
stock:
	@$(PATCHES) build --stock --out $(BIN)/stock --tags netgo

## run-sharded: three shards of it with two replicas each, Thanos over them and a bucket, promguard in front; Ctrl-C stops all
.PHONY: run-sharded
run-sharded: prometheus promguard thanos sharded
	$(BIN)/sharded run $(ARGS)

## thanos: bin/peers/thanos, as pinned in test/peers/thanos
.PHONY: thanos
thanos:
	cd test/peers/thanos && go build -tags slicelabels -o '$(CURDIR)/$(BIN)/peers/' github.com/thanos-io/thanos/cmd/thanos

## promguard, walreplay, oomstorm, sharded, demo: the other binaries
.PHONY: promguard walreplay oomstorm sharded demo
promguard: PACKAGE := ./cmd/promguard
walreplay oomstorm sharded: PACKAGE = ./bench/$@
demo: PACKAGE := ./tools/demo
promguard walreplay oomstorm sharded demo:
	@go build -ldflags "$$($(PATCHES) ldflags)" -o $(BIN)/ $(PACKAGE)

## install: promguard, prometheus and promtool of make build into PREFIX/bin, by default /usr/local/bin
.PHONY: install
PREFIX ?= /usr/local
install: # Builds nothing, so that root need not.
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install $(BIN)/promguard $(BIN)/prometheus $(BIN)/promtool '$(DESTDIR)$(PREFIX)/bin'

## test: everything that must pass before a change lands
.PHONY: test
test: build test-unit test-mixin patches-verify patches-test test-e2e

## test-unit: this repository's packages
.PHONY: test-unit
test-unit:
	go vet ./...
	go test -timeout 60m ./...

## test-mixin: the dashboards and alerts that are checked in are those that deploy/mixin gives
.PHONY: test-mixin
test-mixin: # Uncached: go test does not notice changes of files outside its module.
	cd tools/deploy && go test -count=1 ./mixin

## test-deploy: test-mixin, and the manifests and the chart, read by kustomize, Helm and the types of Kubernetes
.PHONY: test-deploy
test-deploy:
	cd tools/deploy && go vet ./... && go test -count=1 ./...

## test-alert-mutants: every threshold of every alert, shifted by half, fails a unit test
.PHONY: test-alert-mutants
test-alert-mutants: build
	PROMGUARD_BIN='$(CURDIR)/$(BIN)' PROMGUARD_MUTANTS=1 go test -count=1 ./test -run TestEveryThreshold

## test-hostile-queries: of drawn queries that pass the limits, the 300 that are expected to take most, before stock Prometheus; test-e2e asks 20
.PHONY: test-hostile-queries
test-hostile-queries: build stock
	PROMGUARD_BIN='$(CURDIR)/$(BIN)' PROMGUARD_HOSTILE_QUERIES=300 go test -count=1 -timeout 60m -v ./test -run TestHostileQueries

## test-ingest-bombs: 300 random bodies, and mutants of those that took most, are scraped by and pushed to a server of 200 MiB; test-e2e sends the worst that are known
.PHONY: test-ingest-bombs
test-ingest-bombs: prometheus
	PROMGUARD_BIN='$(CURDIR)/$(BIN)' PROMGUARD_INGEST_BOMBS=300 go test -count=1 -timeout 120m -v ./test -run TestNothingThatIsScraped

## deploy-render: write what deploy/mixin and the drop rules give, and format the jsonnet
.PHONY: deploy-render
deploy-render:
	cd tools/deploy && go run . ../..
	go test -count=1 ./deploy -run TestTheScrapeClass -update

## test-e2e: the binaries, as an operator runs them
.PHONY: test-e2e
test-e2e: build stock demo # Most tests wait for servers: six at once keep two processors busy.
	PROMGUARD_BIN='$(CURDIR)/$(BIN)' go test -count=1 -timeout 2h -parallel 6 ./test/... ./bench/walreplay/... ./bench/oomstorm/... ./bench/memory ./tools/demo/...

## test-contributing: the worked examples of CONTRIBUTING.md, followed literally in a copy of the repository
.PHONY: test-contributing
test-contributing:
	PROMGUARD_EXAMPLES=1 go test -count=1 -v ./test -run TestTheWorkedExamples

## test-race: the same packages under the race detector, which needs a C compiler; those of the patched Prometheus are in test-race-patches
.PHONY: test-race
test-race:
	CGO_ENABLED=1 go test -race ./...

## test-race-patches: the tests that the patches name under the race detector; heavy, so not in test-race
.PHONY: test-race-patches
test-race-patches: patches-apply
	@$(PATCHES) test --race

## test-peers: promguard before other projects' servers, Thanos and VictoriaMetrics, and drop rules as vmagent and Alloy read them, all built first
.PHONY: test-peers
test-peers: build stock thanos
	cd test/peers/victoriametrics && go build -o '$(CURDIR)/$(BIN)/peers/' ./vmrelabel github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics
	cd test/peers/alloy && go build -o '$(CURDIR)/$(BIN)/peers/' ./alloyrules
	PROMGUARD_BIN='$(CURDIR)/$(BIN)' go test -count=1 -v -run 'VMAgent|Alloy' ./internal/relabel
	PROMGUARD_BIN='$(CURDIR)/$(BIN)' go test -count=1 -v -run 'ThroughPromguard' ./test

## test-sharded: every expression of kube-prometheus through shards, Thanos and promguard, and kills of each part while it is read
.PHONY: test-sharded
test-sharded: prometheus promguard stock thanos
	PROMGUARD_SHARDED='$(CURDIR)/$(BIN)' go test -count=1 -timeout 30m -v ./bench/sharded

## test-page: the page in Debian's Chromium, which is installed if it is absent, under load; pictures into docs/pictures; needs npm and curl
.PHONY: test-page
test-page: build
	./test/page/run.sh '$(CURDIR)/$(BIN)' '$(CURDIR)/docs/pictures'

## test-previous: one data directory between these builds and the release of upstream that was patched before
.PHONY: test-previous
PREVIOUS ?= v0.315.0
test-previous: build stock
	cd "$$(go mod download -json github.com/prometheus/prometheus@$(PREVIOUS) | sed -n 's/^.*"Dir": "\(.*\)",$$/\1/p')" && \
		GOWORK=off go build -tags netgo -o '$(CURDIR)/$(BIN)/previous/' ./cmd/prometheus
	PROMGUARD_BIN='$(CURDIR)/$(BIN)' go test -count=1 -v -run TestOneDataDirectoryGoesBackToTheReleaseBefore ./test

## test-upstream: Prometheus's own tests on the patched tree; most of an hour on two cores
.PHONY: test-upstream
UPSTREAM_PACKAGES ?= ./tsdb/... ./storage/... ./web/... ./promql/... ./scrape/... ./config/... ./cmd/prometheus/...
test-upstream: patches-apply
	cd $(TREE) && GOWORK=off go test -short -timeout 60m $(UPSTREAM_PACKAGES)

## test-fuzz: every fuzzer, of this module and of the patched Prometheus, for FUZZTIME each
.PHONY: test-fuzz
FUZZTIME ?= 10m
test-fuzz: patches-apply
	./tools/fuzz.sh $(FUZZTIME)

## test-wal-fuzz: replay generated logs both ways, WAL_FUZZ_SEEDS of them from WAL_FUZZ_FIRST on, and compare the heads
.PHONY: test-wal-fuzz
WAL_FUZZ_SEEDS ?= 5000
WAL_FUZZ_FIRST ?= 1001
test-wal-fuzz: patches-apply
	cd $(TREE) && GOWORK=off PROMGUARD_REPLAY_SEEDS=$(WAL_FUZZ_SEEDS) PROMGUARD_REPLAY_SEED=$(WAL_FUZZ_FIRST) \
		go test -count=1 -timeout 120m -v ./tsdb -run TestReplayEndsAsUpstreamDoes

## test-read-accounts: what reads of 300 shapes and READ_ACCOUNTS_SEED's 100 random ones hold, against their accounts
.PHONY: test-read-accounts
READ_ACCOUNTS_SEED ?= 1
test-read-accounts: patches-apply
	cd $(TREE) && GOWORK=off PROMGUARD_READ_ACCOUNTS=1 PROMGUARD_READ_ACCOUNTS_SEED=$(READ_ACCOUNTS_SEED) \
		go test -count=1 -timeout 60m -v ./web/api/v1 -run TestAccountsOfReads

## test-read-ends: reads of 250 shapes and READ_ENDS_SEED's 100 random ones, stopped at random instants, end within 100 ms of the processor; and clients at twice the least rate get their answers
.PHONY: test-read-ends
READ_ENDS_SEED ?= 1
test-read-ends: patches-apply
	cd $(TREE) && GOWORK=off PROMGUARD_READ_ENDS=1 PROMGUARD_READ_ENDS_SEED=$(READ_ENDS_SEED) \
		go test -count=1 -timeout 60m -v ./web/api/v1 ./promguard/readapi -run 'TestReadsEnd|TestReadersAtTwice'

## test-rules-fuzz: RULES_FUZZ_EXPRESSIONS random expressions with and without random drop rules, against what rules check says of them
.PHONY: test-rules-fuzz
RULES_FUZZ_EXPRESSIONS ?= 100000
RULES_FUZZ_FIRST ?= 1000
test-rules-fuzz:
	PROMGUARD_RULES_EXPRESSIONS=$(RULES_FUZZ_EXPRESSIONS) PROMGUARD_RULES_SEED=$(RULES_FUZZ_FIRST) \
		go test -count=1 -timeout 120m -v ./internal/rules/check -run TestNoExpressionChangesInAWayThatTheCheckRulesOut

## test-replay-mutants: bugs put into the replay, one after the other, are all caught by walreplay verify; ten minutes
.PHONY: test-replay-mutants
test-replay-mutants: patches-apply
	PROMGUARD_MUTANTS='$(CURDIR)/$(TREE)' go test -count=1 -timeout 60m -v ./bench/walreplay -run TestMutants

## patches-apply: make build/prometheus from the pinned module, the new files and the patches
## patches-export: write commits and new files in build/prometheus back to prometheus-patches
## patches-verify: prove that apply and export give the same files
## patches-test: the tests that the patches name
.PHONY: patches-apply patches-export patches-verify patches-test
patches-apply:
	@$(PATCHES) apply
patches-export:
	@$(PATCHES) export
patches-verify:
	@$(PATCHES) verify
patches-test: patches-apply
	@$(PATCHES) test

## test-sizes: what rules estimate counts with for the patched build, measured in the patched tree
.PHONY: test-sizes
test-sizes: patches-apply
	cp go.mod build/sizes.mod && cp go.sum build/sizes.sum
	go mod edit -replace=github.com/prometheus/prometheus=$(CURDIR)/$(TREE) build/sizes.mod
	PROMGUARD_PATCHED_SIZES=1 go test -modfile=build/sizes.mod -count=1 ./internal/rules/estimate -run TestModel

## upstream-check: in one line, the newest release of Prometheus, the one that is patched, and how many patches would conflict
.PHONY: upstream-check
upstream-check:
	@$(PATCHES) upstream-check

## bench: benchmarks of the packages, in the format that benchstat reads
.PHONY: bench
BENCH ?= .
bench:
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./internal/...

## bench-walreplay: how long small records take to replay, capped and not, for benchstat
.PHONY: bench-walreplay
BENCH_WAL := build/bench-wal
bench-walreplay: prometheus walreplay
	test -d $(BENCH_WAL) || $(BIN)/walreplay generate --series 23000 --scrapes 208 --samples-per-record 100 --out $(BENCH_WAL)
	$(BIN)/walreplay run --wal $(BENCH_WAL) --gomaxprocs 2,128 --count 6 \
		--binary auto=$(BIN)/prometheus --binary 'off=$(BIN)/prometheus --guard.wal-replay-gomaxprocs=off'

## bench-oomstorm: whether upstream and the patched Prometheus keep what the scenario contract expects under a limit of memory; OOMSTORM_ARGS are further flags, such as --scenario=small
.PHONY: bench-oomstorm
OOMSTORM_ARGS ?=
bench-oomstorm: stock prometheus oomstorm
	$(BIN)/oomstorm run --binary upstream=$(BIN)/stock/prometheus --binary patched=$(BIN)/prometheus $(OOMSTORM_ARGS)

## bench-memory: bytes of live heap for a series by owner, upstream and patched, scraped lately, kept and dropped, and after three hours of churn and a compaction, for benchstat; BENCH_MEMORY_ARGS are further flags
.PHONY: bench-memory
BENCH_MEMORY_ARGS ?=
BENCH_HOURS := build/bench-hours
BENCH_MEMORY := go run ./bench/memory --binary upstream=$(BIN)/stock/prometheus --binary 'patched=$(BIN)/prometheus --guard.drop-rules=off'
bench-memory: stock prometheus walreplay
	test -d $(BENCH_HOURS) || $(BIN)/walreplay generate --series 100000 --scrapes 400 --scrape-interval 30s --mmapped-chunks --out $(BENCH_HOURS)
	$(BENCH_MEMORY) $(BENCH_MEMORY_ARGS)
	$(BENCH_MEMORY) --data $(BENCH_HOURS) $(BENCH_MEMORY_ARGS)

## bench-proxy: processor time of a request in promguard serve, against a bare reverse proxy and prom-label-proxy, for benchstat; BENCH_PROXY_ARGS are further flags
.PHONY: bench-proxy
BENCH_PROXY_ARGS ?=
bench-proxy: bench-proxy-build
	cd bench/proxy/labelproxy && go build -o '$(CURDIR)/$(BIN)/' github.com/prometheus-community/prom-label-proxy
	$(BENCH_PROXY) --proxy='prom-label-proxy=$(BIN)/prom-label-proxy --upstream={upstream} --insecure-listen-address={listen} --label=job --label-value=api'

.PHONY: bench-proxy-build
bench-proxy-build: promguard
	go build -o $(BIN)/bench-proxy ./bench/proxy
BENCH_PROXY = $(BIN)/bench-proxy run $(BENCH_PROXY_ARGS) \
	--proxy='promguard=$(BIN)/promguard serve --upstream.url={upstream} --web.listen-address={listen} --web.telemetry-address=127.0.0.1:0'

## figures: measure what the tables of README and docs say, and write them: FIGURES=memory,proxy by default, and the long ones replay,contract; FIGURES= only writes the tables
.PHONY: figures figures-memory figures-proxy figures-replay figures-contract
FIGURES ?= memory,proxy
# The log of replay: after a crash, in an hour of 210,000 series.
FIGURES_LOG ?= --series 210000 --scrapes 480 --checkpoint-scrapes 60
RECORD = go run ./tools/figures record
COMMA := ,
figures: $(addprefix figures-,$(subst $(COMMA), ,$(FIGURES)))
	go run ./tools/figures render
figures-memory: stock prometheus
	$(RECORD) memory -- $(BENCH_MEMORY)
figures-proxy: bench-proxy-build
	$(RECORD) proxy -- $(BENCH_PROXY)
figures-replay: stock prometheus walreplay
	rm -rf build/figures-log
	$(BIN)/walreplay generate $(FIGURES_LOG) --mmapped-chunks --out build/figures-log
	$(RECORD) replay -- $(BIN)/walreplay run --wal build/figures-log --gomaxprocs 2 --count 3 \
		--binary 'upstream=$(BIN)/stock/prometheus' --binary 'patched=$(BIN)/prometheus --guard.wal-replay-gomaxprocs=off'
	rm -rf build/figures-log
figures-contract: stock prometheus oomstorm
	$(RECORD) contract -- $(BIN)/oomstorm run --binary upstream=$(BIN)/stock/prometheus --binary patched=$(BIN)/prometheus $(OOMSTORM_ARGS)

## bench-sharded: what servers, Thanos and promguard take of a cluster of 1, 2, 4 and 8 thousandths of 7,500 nodes, and how it grows; BENCH_SHARDED_ARGS are further flags
.PHONY: bench-sharded
BENCH_SHARDED_ARGS ?=
bench-sharded: prometheus promguard thanos sharded
	$(BIN)/sharded bench $(BENCH_SHARDED_ARGS)

include tools/packaging.mk
include tools/cluster.mk

## lint, fmt: golangci-lint and gofumpt, as pinned in tools/lint.mod; lint looks at every module here, and at the new files and edited lines of the patched tree
.PHONY: lint lint-modules lint-tree fmt
LINTER := $(CURDIR)/$(BIN)/golangci-lint
lint: lint-tree lint-modules
	$(LINTER) run ./...
lint-modules: lint-tree
	@for m in $$(git ls-files '*/go.mod' | grep -v -e /testdata/ -e ^prometheus-patches/ | xargs -n 1 dirname); do \
		test -n "$$(git ls-files "$$m/*.go")" || continue; \
		echo "lint $$m" && (cd "$$m" && $(LINTER) run --config '$(CURDIR)/.golangci.yml' ./...) || exit 1; \
	done
lint-tree: patches-apply
	@go build -modfile=tools/lint.mod -o $(LINTER) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	cd $(TREE) && GOWORK=off $(LINTER) run --config '$(CURDIR)/.golangci.yml' --new-from-rev=promguard-upstream \
		./promguard/... ./model/... ./promql/... ./tsdb/... ./scrape/... ./rules/... ./web/... ./config/... ./storage/... ./util/... ./cmd/...
fmt:
	$(GO_TOOL) golangci-lint fmt ./...

## vulncheck: known vulnerabilities in the binaries of make build, by govulncheck, which reads its database at vuln.go.dev
.PHONY: vulncheck
vulncheck: build
	@go build -modfile=tools/lint.mod -o $(BIN)/ golang.org/x/vuln/cmd/govulncheck
	@found=0; for binary in prometheus promtool promguard walreplay; do \
		code=0; $(BIN)/govulncheck -mode=binary $(BIN)/$$binary || code=$$?; \
		case $$code in 0) ;; 3) found=1 ;; *) echo "vulncheck: $$binary was not checked: the database (https://vuln.go.dev) must be reachable" >&2; exit 1 ;; esac; \
	done; exit $$found

## clean: remove what was built; the data below data/ stays
.PHONY: clean
clean:
	rm -rf $(BIN) build

## help: this list
.PHONY: help
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)
