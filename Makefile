# The commands of setnxlock. Each needs Go alone, but for the tests: they start a
# real redis-server, look at pages in chromium and fetch Mermaid with npm (.ci/run
# installs all three from Debian's packages), and `make lint` fetches staticcheck.
# `make interop` wants Python, Node, Java, pip, npm, Maven and apt as well.

GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 30s
FOR ?= 10m
SETNXLOCK_INTEROP ?= installed

.PHONY: demo test race interop simulate fuzz bench gobench mixing site lint install

## demo: the locks at work, on the embedded old Redis
demo:
	@$(GO) run ./cmd/setnxlock demo

## test: everything, on the embedded servers, a real redis-server, and the addresses in SETNXLOCK_TEST_REDIS
test:
	$(GO) vet ./...
	$(GO) test -timeout 30m ./...
	cd bench && $(GO) vet ./... && $(GO) test ./...
	@echo "not run here: the locks against the real clients of other languages (make interop)"

## race: under the race detector; of the explorer and its command, which are slow under it and run on one goroutine, a part
race:
	$(GO) test -race -timeout 30m -skip 'TestScripts/race' $$($(GO) list ./... | grep -v '/compat/race$$')
	$(GO) test -race -timeout 30m -run 'Fork|ArePinned|Broken|Schedule|JSON' ./compat/race

## interop: against the real clients of other languages, from npm, PyPI, Maven Central and Debian; writes docs/interop.md
interop:
	@./compat/dialect/interop/install.sh || echo "not every client was installed; SETNXLOCK_INTEROP=all makes that a failure" >&2
	SETNXLOCK_INTEROP=$(SETNXLOCK_INTEROP) $(GO) test ./compat/dialect/interop -count=1 -timeout 15m -v -run Interop -update

## simulate: processes of Lockers through seeded faults on virtual time, for FOR on every core; SEED=n tells that run line by line
simulate:
	@$(GO) test -c -o $${TMPDIR:-/tmp}/setnxlock-simulate ./compat/simulate
	@if [ -n "$(SEED)" ]; then cd compat/simulate && exec $${TMPDIR:-/tmp}/setnxlock-simulate -test.run Simulation -test.v -test.cpu 1 -seed $(SEED) -only; fi; \
	cd compat/simulate; n=$$(getconf _NPROCESSORS_ONLN); first=$$(date +%s)0; pids=; failed=0; \
	for i in $$(seq $$n); do $${TMPDIR:-/tmp}/setnxlock-simulate -test.run Simulation -test.v -test.timeout 0 -test.cpu 1 -seed $$((first + i)) -step $$n -for $(FOR) & pids="$$pids $$!"; done; \
	for p in $$pids; do wait $$p || failed=1; done; exit $$failed

## fuzz: the parsers of what foreign clients write, and of handles, FUZZTIME each
fuzz:
	$(GO) test -run '^$$' -fuzz FuzzParse -fuzztime $(FUZZTIME) ./getsetlock
	$(GO) test -run '^$$' -fuzz FuzzTimestamp -fuzztime $(FUZZTIME) ./txlock
	$(GO) test -run '^$$' -fuzz FuzzStamp -fuzztime $(FUZZTIME) ./compat/dialect
	$(GO) test -run '^$$' -fuzz FuzzHandle -fuzztime $(FUZZTIME) ./compat
	$(GO) test -run '^$$' -fuzz FuzzHostileServer -fuzztime $(FUZZTIME) ./compat/promises

## bench: the locks beside two PINGs and other libraries, on a redis-server or on those in SETNXLOCK_TEST_REDIS; writes docs/performance.md; about six minutes a server
bench:
	cd bench && $(GO) run . $(BENCHFLAGS)

## gobench: Go's own benchmarks: what an acquisition and a release cost on the embedded servers, with what is allocated, and in PINGs
gobench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

## mixing: the table of docs/mixing.md anew; every pair: setnxlock race mixing -o FILE, minutes
mixing:
	$(GO) test ./compat/race/mixing -count=1 -run TestPageIsNotStale -update-mixing

## site: the races and the workbench as a web site in SITE (default: site in the temporary folder), for a browser from the disk or any static host; the tables of guarantees take minutes: setnxlock race site without --no-guarantees
site:
	$(GO) run ./cmd/setnxlock race site --no-guarantees --workbench $(or $(SITE),$${TMPDIR:-/tmp}/setnxlock-site)

## lint: gofmt, vet and staticcheck
lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "these files want gofmt"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd bench && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...

## install: the command, into GOBIN, without the tables of a debugger
install:
	$(GO) install -trimpath -ldflags "-s -w" ./cmd/setnxlock
