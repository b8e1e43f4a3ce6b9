# galgo: `make demo` and `make test` are all one needs. GNU make.

site   := .build/demo
listen ?= 127.0.0.1:8080
cargo  := cargo

.DEFAULT_GOAL := help
.PHONY: help build demo site test attack vm check bench bench-quick instructions clean

help:  ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build:  ## build target/release/galgo, and galgo-wasm beside it
	$(cargo) build --release --locked

# What takes most of the building comes when the site is up (programs in Rust and Go, wasmtime): in the background, for as
# long as the server runs, whose process id is that of the shell that becomes it.
demo:  ## serve the demo site at http://127.0.0.1:8080/, and build meanwhile what takes long
	@scripts/need demo
	@examples/build --soon $(site) & $(cargo) build --profile demo --locked --package galgo && wait
	@scripts/live $(site)
	@(scripts/follow $(site) $$$$ &); exec target/demo/galgo serve $(site) --listen $(listen)

site:  # the demo site, with every program this machine can build
	@scripts/need demo modules
	@examples/build $(site)

# Tests of `it` in which it is all the same how a program starts.
no_start := access:: acme:: client_certificates:: compress:: faults::upstreams files:: handshakes:: headers:: http2:: include:: judges:: \
  logs:: passwords:: proxied:: redirects:: sites:: tls:: wasm::

# Tests wait most of the time: for a clock, a program, a grace period. (`it` has this many threads by itself.)
test: export RUST_TEST_THREADS := $(shell expr 2 \* $$(nproc))

test:  ## install what the tests need, and run every test
	@scripts/need test
	@examples/build --strict $(site)
	examples/test-guestbook $(addprefix $(site)/cgi-bin/guestbook,-c -rust -go .py .pl .js .sh)
	$(cargo) test --workspace --locked
	GALGO_TEST_START=warm $(cargo) test --workspace --locked --test it -- $(addprefix --skip ,$(no_start))
	GALGO_TEST_START=warm $(cargo) test --workspace --locked --test real
	GALGO_TEST_TLS=1 $(cargo) test --locked --package galgo --test it
	GALGO_TEST_HTTP2=1 $(cargo) test --locked --package galgo --test it
	attack/run

attack:  ## attack galgo as hostile programs, accounts, clients and fronts would, and print a table
	@scripts/need test
	$(cargo) build --workspace --locked
	attack/run

vm:  ## boot a Debian with systemd by emulation, and run galgo as a service and with control groups there
	@scripts/need vm
	$(cargo) build --workspace --locked
	scripts/vm/boot target/debug/galgo fcgiwrap limits service user

check:  ## formatting, lints, documentation, licences and sources of dependencies
	@scripts/need check
	$(cargo) fmt --all --check
	$(cargo) fmt --check --manifest-path examples/guestbook/rust/Cargo.toml
	$(cargo) fmt --check --manifest-path examples/wasm/http/Cargo.toml
	$(cargo) fmt --check --manifest-path bench/micro/Cargo.toml
	$(cargo) fmt --check --manifest-path fuzz/Cargo.toml
	$(cargo) clippy --workspace --all-targets --locked -- -D warnings
	$(cargo) clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(cargo) doc --workspace --no-deps --locked
	scripts/prose
	$(cargo) test --workspace --locked --test circles --test names --test sizes
	bench/run --help >/dev/null
	.build/cargo/bin/cargo-deny --locked check --hide-inclusion-graph bans licenses sources

bench: build  ## measure beside other servers: takes long, wants a quiet machine
	@scripts/need bench
	bench/run

bench-quick: build  ## the same, in a few minutes
	@scripts/need bench
	bench/run --quick

instructions:  ## count the instructions of a request, compare with the baseline
	@scripts/need instructions
	bench/instructions

clean:  ## remove everything that was built
	$(cargo) clean
	rm -rf .build
