# The commands for contributors. `make run` and `make test` install what they need.

CELL ?= cell
# The profile of the program that `make interop` tests: that of the unit tests, which checks arithmetic, or `release`.
PROFILE ?= dev
# How many unit tests of a program run at a time. Those with servers mostly wait.
TEST_THREADS ?= $(shell n=$$(nproc); [ $$n -gt 8 ] && echo $$n || echo 8)

.PHONY: help run test quick check unit interop libafs demo-cluster bench soak package release msrv deps deny fmt
.DEFAULT_GOAL := run

help:                           ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: deps                       ## a complete cell on loopback, kept in ./cell
	cargo build --release -p cellar
	exec target/release/cellar quickstart --dir $(CELL)

test: deps check unit interop   ## all tests; CI runs this

quick:                          ## before each commit: checks and unit tests; lists what it leaves out
	scripts/quick

deps:                           ## installs Debian packages for building and testing
	scripts/install-deps

check: deny                     ## format, lints, the repository's own rules, dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p cellar --no-default-features -- -D warnings
	cargo xtask tidy

deny:                           ## licences, duplicates and advisories of dependencies, if cargo-deny is installed
	scripts/deny

unit:                           ## unit tests, models and simulations
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --workspace --no-fail-fast --tests
	cargo test --workspace --doc

interop:                        ## tests with the real OpenAFS tools, kafs and afsd.fuse (root); PROFILE=release: of the release build
	cargo build --profile $(PROFILE) $(if $(filter dev,$(PROFILE)),--workspace --bins --tests,-p cellar -p interop)
	target/$(PROFILE:dev=debug)/interop

libafs:                         ## 131 commands, and moving volumes, under OpenAFS's kernel client; builds its module once (root)
	cargo build --release -p cellar -p interop
	target/release/interop libafs-commands libafs-volumes

demo-cluster: deps              ## three nodes and a bucket on this machine: clients write, a node is killed (root)
	cargo build --release -p cellar -p interop
	CELLAR_TEST_JOBS=1 target/release/interop demo-cluster

bench: deps                     ## compares Cellar with others on this machine; writes the figures to docs/lab/benchmarks.md
	scripts/install-deps bench
	cargo build --release -p cellar -p bench
	cargo build --release -p volume --example big_volume --example many_volumes
	cargo build --release -p store --example cache_purge
	scripts/bench

soak: deps                      ## the randomised tests with new seeds for SOAK_MINUTES (60); then kills and full disks
	scripts/soak

package: deps                   ## Debian packages, in target/packages; SUITE=trixie: for that release (root)
	$(if $(SUITE),scripts/package-in $(SUITE),scripts/package)

release: deps                   ## the files of a release, in target/release-files: packages, checksums, components, notes
	scripts/release

msrv: deps                      ## compiles with the oldest supported Rust; rustup installs it
	scripts/msrv

fmt:                            ## formats the sources
	cargo fmt --all
