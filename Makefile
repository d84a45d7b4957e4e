# Short commands; the build itself is CMakeLists.txt with CMakePresets.json. `make help` lists them.
PREFIX ?= /usr/local
BUILD := build/release

.PHONY: all product demo test ci conformance bench bench-full bench-record figures scaling seeing soak docs install wheel deb clean help

all: product

product: ## the library and the hakmem command, into build/release
	@scripts/setup build
	@cmake --preset release $(if $(wildcard $(BUILD)/build.ninja),>/dev/null)
	@cmake --build --preset release --target product

demo: product ## a real program under HAKMEM and under glibc's malloc, side by side
	@scripts/setup demo
	python3 bench/demo.py --build $(BUILD)

test: ## everything that fits 20 minutes: release and debug builds, all tests
	@scripts/setup test
	python3 scripts/check.py release debug

ci: ## what CI runs: test, and clang, the sanitizers, aarch64 and musl
	bash .ci/run

conformance: product ## glibc's own malloc tests
	@scripts/setup test
	@cmake --build --preset release
	ctest --preset release -L conformance

bench: product ## every quick row against the allocators at hand: minutes, and a page
	@scripts/setup bench
	$(BUILD)/hakmem bench --quick --json build/bench.json --html build/bench.html

bench-full: product ## the newest peers built, every row at full length: hours
	@scripts/setup bench
	python3 bench/peers.py --build-newest
	$(BUILD)/hakmem bench --full --json build/bench-full.json --html build/bench-full.html

bench-record: product ## results of record into bench/results: the quick rows, and the seeds' table (15 minutes, idle machine)
	@scripts/setup bench
	$(BUILD)/hakmem bench --quick --json build/bench.json --html build/bench.html --record bench/results
	$(BUILD)/hakmem bench --seeds --record bench/results

figures: product ## every figure of docs/figures.md, measured here
	@scripts/setup bench
	python3 bench/figures.py --build $(BUILD)

scaling: product ## throughput by threads, 1 to twice as many as there are processors, under each allocator at hand
	@scripts/setup bench
	python3 bench/scaling.py --build $(BUILD) --json build/scaling.json --markdown build/scaling.md --svg build/scaling.svg

seeing: product ## a redis server of 2 GB recorded: its pauses, the report's time, throughput
	@scripts/setup bench
	python3 bench/attach.py --build $(BUILD) --json build/attach.json
	python3 bench/turns.py --build $(BUILD) --redis --turns 2400

soak: product ## threads, forks and signals until interrupted; SECONDS=N for a fixed time
	@scripts/setup test
	@cmake --build --preset release
	python3 scripts/check.py --soak $(or $(SECONDS),3600)

docs: ## docs/options.md and docs/counters.md from their tables
	python3 scripts/gen_docs.py

# What another user built is installed as it is: root may have another cargo, and is not to own parts of the build.
IS_ANOTHERS = $(shell [ "$$(id -u)" = 0 ] && [ -f $(BUILD)/libhakmem.so ] && [ "$$(stat -Lc %u $(BUILD)/libhakmem.so)" != 0 ] && echo yes)

install: $(if $(IS_ANOTHERS),,product) ## into PREFIX (/usr/local), or below DESTDIR
	cmake --install $(BUILD) --prefix "$(PREFIX)"
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || echo "run ldconfig as root, so that the loader finds libhakmem.so in $(PREFIX)/lib"

wheel: product ## a Python wheel with the library, the command and the module, into build/release
	@scripts/setup wheel
	@python3 scripts/wheel.py --build $(BUILD)

deb: ## Debian packages, into build/deb
	@scripts/setup deb
	cmake --preset deb >/dev/null
	cmake --build --preset deb
	cd build/deb && cpack -G DEB

clean:
	rm -rf build tools/*/target crates/*/target

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile
