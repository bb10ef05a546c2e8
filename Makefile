# Verbs of the project. `make help` lists them.
CARGO ?= cargo
BIN := $(or $(CARGO_TARGET_DIR),target)/release/atpm-train

.PHONY: help build demo test test-kernels test-launches kernels build-cuda check-cuda gpu-bundle rehearse cuda-toolkit check bench bench-ops doc golden fmt clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

build: ## build the release binary, target/release/atpm-train
	$(CARGO) build --release --bin atpm-train

demo: build ## shards, a trained model, its loss plot, text and an export, in under two minutes after the build
	scripts/demo.sh $(BIN)

test: ## run every test
	scripts/test.sh

test-kernels: ## run every CUDA kernel on the CPU, by emulation
	scripts/test_kernels.sh

test-launches: ## run what launches the CUDA kernels, whole training runs among it, on kernels emulated on the CPU
	scripts/test.sh --features emulated-cuda --test cuda --test emulated_cuda

build-cuda: ## build target/release/atpm-train with CUDA; needs a CUDA 13.0 toolkit (nvcc, libraries)
	CUDA_COMPUTE_CAP=$${CUDA_COMPUTE_CAP:-80} $(CARGO) build --release --workspace --locked --bin atpm-train --features cuda

check-cuda: ## type check and lints of the CUDA backend, without CUDA
	scripts/check_cuda.sh

gpu-bundle: ## one folder for a machine with a GPU and no compiler, target/gpu-bundle
	scripts/gpu_bundle.sh

rehearse: ## the GPU's check from the bundle, on an emulated driver
	scripts/rehearse.sh

kernels: ## compile the CUDA kernels for sm_80 and sm_90, target/kernels
	scripts/kernels.sh

cuda-toolkit: ## a CUDA toolkit out of Python wheels, target/cuda, for machines without one
	scripts/cuda_toolkit.sh

check: ## what CI runs: format, lints, tests, documentation
	.ci/run

bench: build ## speed of a training step, of decoding and of the mixer, beside PyTorch
	scripts/peers/compare.sh $(BIN)
	scripts/peers/compare_decode.sh $(BIN)
	scripts/peers/compare_delta.sh $(BIN)

bench-ops: ## every op beside its reference and its floor, by criterion; OP=NAME for some
	$(CARGO) bench --workspace --locked --bench ops -- $(OP)

doc: ## build the documentation, target/doc
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items --locked

golden: ## record the debug run's losses anew (say why in CHANGELOG.md, under Numerics)
	UPDATE_GOLDEN=1 $(CARGO) test -p atpm-train --test debug_run --locked

fmt: ## format the code
	$(CARGO) fmt --all

clean: ## remove builds, runs and demo shards
	$(CARGO) clean
	rm -rf runs data/demo
