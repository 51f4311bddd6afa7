# Each target calls what `make setup` put into .venv; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# Every process caches bytecode: without it, starts and collection take three times the CPU time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z0-9-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements/bootstrap.txt requirements/dev.txt pyproject.toml
	@echo "setting up .venv (locked, with hashes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@echo "compiling the kernels, once: some 20 s"
	@$(BIN)/esg warm-up
	@touch $@

# Programs of others whose dependencies conflict with ours: tools that the chart is held against, and model servers that
# the gateway is tested and compared with. Each set has an environment; Triton's lacks what only its Python client needs, and
# TorchServe's has the system's PyTorch, because that of PyPI has gigabytes for GPUs.
CHECKERS := build/checkers/.installed
MODEL_SERVERS := $(patsubst %,build/%/.installed,model-servers kserve triton torchserve)
INTERPRETER := $(BIN)/python
build/torchserve/.installed: INTERPRETER := $(firstword $(wildcard /usr/bin/python3) $(BIN)/python) --system-site-packages
build/%/.installed: requirements/%.txt | $(STAMP)
	@echo "setting up build/$* (locked, with hashes)"
	@$(BIN)/uv venv --quiet --clear --python $(INTERPRETER) build/$*
	@$(BIN)/uv pip sync --quiet --python build/$*/bin/python --require-hashes $<
	@touch $@

# The project as the image has it: the gateway's data path is compiled (`[tool.hatch...mypyc]` in pyproject.toml), which
# leaves its products beside the sources, so it works on a copy; and the kernels are (hatch_build.py).
COMPILED := build/compiled/.installed
$(COMPILED): pyproject.toml hatch_build.py $(shell find scheduler studies workbench -name '*.py') | $(STAMP)
	@echo "compiling the gateway's data path and the kernels (5 minutes)"
	@rm -rf build/compiled build/compiler && mkdir -p build/compiler/source
	@cp -r pyproject.toml README.md LICENSE hatch_build.py scheduler studies workbench build/compiler/source
	@HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir build/compiler build/compiler/source
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target build/compiled build/compiler/*.whl
	@touch $@

.PHONY: setup
setup: $(STAMP) ## create .venv with `esg` and all tools of the other targets

.PHONY: lock
lock: setup ## resolve the dependencies again and write requirements/*.txt with hashes
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 --extra otel pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml --group dev -o requirements/dev.txt
	printf 'checkov\nhadolint-bin\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 - -o requirements/checkers.txt
	printf 'mlserver==1.7.*\nonnx\nonnxruntime\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 - -o requirements/model-servers.txt
	printf 'kserve\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 - -o requirements/kserve.txt
	printf '%s; python_version < "3.13"\n' 'numpy<2' nvidia-pytriton | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-deps --no-header --python-version 3.11 - -o requirements/triton.txt
	printf 'numpy\nray[serve]\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 - -o requirements/ray.txt
	printf 'torchserve\ntorch-model-archiver\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 - -o requirements/torchserve.txt
	printf 'hatch-mypyc\nhatchling\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 -c requirements/dev.txt - -o requirements/build.txt
	echo uv | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 -c requirements/dev.txt - -o requirements/bootstrap.txt

.PHONY: demo
demo: setup ## demo without Kubernetes: requests, pods from demand on 16 GPU nodes in memory, a live table; 2 minutes
	@$(BIN)/esg demo

.PHONY: cluster
cluster: setup ## a real control plane with 16 mocked GPU nodes and the extender, until Ctrl-C (needs Go)
	@$(BIN)/python -m tests.testbed.cluster

# With --keep-going, one failure hides no other: the rest still runs, and the status is a failure.
KEEP_GOING := $(MAKE) --no-print-directory --keep-going

.PHONY: check
check: setup ## the inner loop: lint, and at the same time every quick test that needs no control plane
	@$(KEEP_GOING) --jobs --output-sync=target test-quick lint

# Rooms whose quick tests share a process; the other rooms share one more. Each takes about a quarter of the CPU time.
# A process imports most of the package once; workers would collect all tests each, and one process waits too often.
# Tests of servers hand over from thread to thread: what computes without a pause lets them go first.
QUICK_ROOMS := agent+gateway chart+contract+extender+webhook server+simulation+studies
QUICK := $(BIN)/pytest -q -m "not e2e and not slow" --hypothesis-profile quick
test-quick-others test-quick-server+simulation+studies lint: LATER := nice -n 5
rooms = $(addprefix tests/,$(subst +, ,$(1)))

.PHONY: test-quick test-quick-others $(QUICK_ROOMS:%=test-quick-%)
test-quick: test-quick-others $(QUICK_ROOMS:%=test-quick-%)

test-quick-others: setup
	@$(LATER) $(QUICK) $(addprefix --ignore=,$(call rooms,$(QUICK_ROOMS)))

$(QUICK_ROOMS:%=test-quick-%): test-quick-%: setup
	@$(LATER) $(QUICK) $(call rooms,$*)

.PHONY: test
test: setup $(CHECKERS) ## what a change must pass: lint, all tests but the nightly ones, the wheel (needs Go; on kind where it can be)
	@$(KEEP_GOING) lint test-programs test-all

# Programs are built before the tests: a cold build may take longer than a test may.
.PHONY: test-programs
test-programs: setup
	@if command -v go >/dev/null || [ "$$CI" = true ]; then $(BIN)/python -m tests.testbed.binaries >/dev/null; fi

# The suites on kind and on the control plane mostly wait, so they and the runs after them share the machine with the other
# tests. Each lane has a session of its own that ends with this one; its output follows at the end.
.PHONY: test-all test-lane-kind test-lane-control-plane
test-all: setup
	@mkdir -p build; lanes=; status=0; \
	for lane in kind control-plane; do \
	    setsid $(KEEP_GOING) test-lane-$$lane > build/$$lane.log 2>&1 & lanes="$$lanes $$!"; \
	done; \
	trap 'for lane in $$lanes; do kill -- -$$lane; done' INT TERM; \
	$(BIN)/pytest -m "not nightly" --ignore tests/node --ignore tests/e2e --durations=20 || status=$$?; \
	for lane in $$lanes; do wait $$lane || status=$$?; done; \
	cat build/kind.log build/control-plane.log; exit $$status

test-lane-kind: test-node test-wheel

test-lane-control-plane: setup
	@$(BIN)/pytest -m "not nightly" tests/e2e --durations=20

# `kind.py` starts Docker where none runs, creates the cluster, runs a command, and deletes both.
KIND := $(BIN)/python -m tests.testbed.kind

.PHONY: test-node
test-node: setup
	@if $(BIN)/python -m tests.testbed.machine_requirements; then $(KIND) $(BIN)/pytest -v tests/node; else [ "$$CI" != true ]; fi

.PHONY: e2e-serving
e2e-serving: setup ## 2,000 requests through gateway, reserved and pooled pods, and a real control plane, next to the simulator (needs Go; minutes)
	@$(BIN)/pytest -q tests/e2e/test_serving.py tests/e2e/test_serving_in_slices.py

.PHONY: test-kind
test-kind: setup ## all suites on a kind cluster, made and deleted: end-to-end, chart, node (root, Go; docs/testing.md)
	@$(BIN)/python -m tests.testbed.machine_requirements
	@$(MAKE) --no-print-directory kind-parts
	@$(KIND) $(KEEP_GOING) kind-node kind-chart kind-e2e

# A test that needs more than kind allows (a stop of its API server, say) is skipped with a reason;
# `make test` runs it.
.PHONY: kind-node kind-chart kind-e2e
kind-node kind-e2e: kind-%:
	@echo "tests/$*:"; $(BIN)/pytest -q -rs tests/$*

kind-chart:
	@echo "tests/chart:"; $(BIN)/pytest -q -rs -m e2e tests/chart

.PHONY: install-test
install-test: setup ## the chart on kind: our image, containerd, the kubelet, and nothing else (root, Go; docs/testing.md)
	@$(BIN)/python -m tests.testbed.machine_requirements
	@CI=true $(MAKE) --no-print-directory test-node

.PHONY: kind-parts
kind-parts: setup
	@$(KIND) --build

# `make test` has the pinned release. The first build of another takes minutes; docs/testing.md.
RELEASES ?= 1.30.14 1.34.4 1.36.3 1.37.2
.PHONY: test-matrix
test-matrix: setup ## render the chart for every supported Kubernetes, install it on API servers of RELEASES= (needs Go)
	@$(BIN)/pytest -q tests/chart/test_kubernetes_versions.py
	@for release in $(RELEASES); do \
	    echo "Kubernetes $$release"; export ESG_TEST_KUBERNETES=$$release; \
	    $(BIN)/python -m tests.testbed.kubernetes_release && \
	    $(BIN)/pytest -q -rs -m e2e tests/chart tests/e2e/test_workflows.py tests/e2e/test_resource_claims.py tests/e2e/test_gangs.py || exit 1; \
	done

# What takes long and rarely breaks. `make test` leaves it out, or runs it only where the programs are built already.
.PHONY: test-nightly
test-nightly: setup ## what CI runs every night besides: long tests, kernels without their compiler, the data path with one, other projects' programs
	@$(KEEP_GOING) test-long test-nojit test-compiled test-neighbours

.PHONY: test-long
test-long: setup $(MODEL_SERVERS) ## tests that take minutes, before real model servers, or whose figures need a machine of their own (needs Go)
	@$(BIN)/pytest -q -rs -m nightly

.PHONY: test-neighbours
test-neighbours: setup ## beside the real Karpenter and Kueue on a control plane, and with a real Jaeger (needs Go and a C compiler; minutes)
	@$(BIN)/python -m tests.testbed.binaries etcd kube-apiserver kube-controller-manager kube-scheduler kwok karpenter kueue all-in-one >/dev/null
	@$(BIN)/pytest -q -rs tests/e2e/test_karpenter.py tests/e2e/test_kueue.py tests/gateway/test_jaeger.py

.PHONY: test-nojit test-nojit-search test-nojit-placement
test-nojit: test-nojit-search test-nojit-placement ## the kernels as plain Python: index errors that compiled code hides, every branch of the search

test-nojit-search: setup
	@NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q tests/search --hypothesis-seed=0 --cov=scheduler.search --cov-fail-under=100

test-nojit-placement: setup
	@NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q tests/placement

.PHONY: test-compiled
test-compiled: setup ## the gateway's data path, the simulator and the kernels compiled, as in the image: tests of their rooms (needs a C compiler)
	@if command -v cc >/dev/null || [ "$$CI" = true ]; then \
	    $(MAKE) --no-print-directory $(COMPILED) && PYTHONPATH=$(CURDIR)/build/compiled $(BIN)/pytest -q \
	        -o "pythonpath=build/compiled ." -m "not replaces and not nightly" \
	        tests/dispatch tests/gateway tests/ledger tests/oip tests/placement tests/search tests/simulation; \
	else echo "tests of the compiled form are left out: there is no C compiler (cc)"; fi

.PHONY: test-wheel
test-wheel: setup ## build the wheel, install it alone, and run the command from it
	@rm -rf build/wheel && mkdir -p build/wheel
	@$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir build/wheel .
	@$(BIN)/uv venv --quiet --python $(BIN)/python build/wheel/venv
	@$(BIN)/uv pip install --quiet --python build/wheel/venv/bin/python --require-hashes -r requirements/run.txt
	@$(BIN)/uv pip install --quiet --python build/wheel/venv/bin/python --no-deps build/wheel/*.whl
	@cd build/wheel && venv/bin/python -c 'import scheduler, studies, workbench' && venv/bin/esg jobs --help > help.txt
	@cd build/wheel && venv/bin/esg samples --out samples && venv/bin/esg check samples

RUNS ?= 1000
SEED ?= 1
ACTIVE ?= 1
.PHONY: campaign
campaign: setup ## drawn faults on a simulated cluster: RUNS= runs from SEED= on, ACTIVE=1 or 2 replicas
	@$(BIN)/python -m tests.campaign --runs $(RUNS) --seed $(SEED) --active $(ACTIVE)

REQUESTS ?= 10000
FIRST ?= 0
.PHONY: fuzz
fuzz: setup ## mutated requests to every port of real processes: REQUESTS= of them, SEED=
	@$(BIN)/python -m tests.fuzz --requests $(REQUESTS) --seed $(SEED) --first $(FIRST)

.PHONY: floods
floods: setup ## floods of every port of real processes: memory, and the time of filter meanwhile (2 minutes)
	@$(BIN)/python -m tests.floods

.PHONY: bench-extender
bench-extender: setup ## latency of filter, prioritize and bind at 100, 1,000 and 5,000 nodes
	@$(BIN)/python -m bench.extender

.PHONY: bench-cluster
bench-cluster: setup ## pods bound a second by kube-scheduler: alone, with a do-nothing extender, with ours
	@$(BIN)/python -m bench.cluster

.PHONY: bench-claims
bench-claims: setup ## time to the Binding of pods with resource claims, next to pods without
	@$(BIN)/python -m bench.claims

.PHONY: bench-memory
bench-memory: $(COMPILED) ## memory of the service at 5,000 nodes and 20,000 pods, compiled as in the image
	@PYTHONSAFEPATH=1 PYTHONPATH=build/compiled:. $(BIN)/python -m bench.memory

.PHONY: bench-scale
bench-scale: $(COMPILED) ## extender at 15,000 nodes of 8 GPUs, and one namespace of 2,000 GPUs by one and two owners (minutes)
	@PYTHONSAFEPATH=1 PYTHONPATH=build/compiled:. $(BIN)/python -m bench.scale

.PHONY: bench-search
bench-search: setup ## one plan: the kernels, the Python front, the paper's A*, CP-SAT; how it grows
	@$(BIN)/python -m bench.search

.PHONY: bench-oip
bench-oip: setup ## CPU time per request of the gateway's messages: parse, join, split, answer
	@$(BIN)/python -m bench.oip

.PHONY: bench-gateway
bench-gateway: $(COMPILED) build/ray/.installed ## CPU time and latency of the gateway's HTTP data path, next to Go's reverse proxy and Ray Serve (needs Go)
	@$(BIN)/python -m bench.gateway --project build/compiled
	@$(BIN)/python -m bench.gateway --project build/compiled --recording --rounds 20

.PHONY: bench-dispatch
bench-dispatch: setup ## CPU time of the gateway's decisions with 200 warm pods and with 400 pooled ones
	@$(BIN)/python -m bench.dispatch
	@$(BIN)/python -m bench.dispatch --pooled

data = $(or $(ESG_DATA),$(error ESG_DATA is not set; name the folder with the data of others: docs/testing.md))
.PHONY: bench-mps
bench-mps: setup ## what a batch costs beside idle and running MPS processes (needs a GPU; starts an MPS daemon, and ends it)
	@$(BIN)/python -m bench.mps --daemon

.PHONY: bench-jobs
bench-jobs: setup ## CPU time of Tiresias, Optimus and Pollux on one published workload; ESG_DATA=DIR
	@$(BIN)/python -m bench.jobs --data $(data)

.PHONY: bench-startup
bench-startup: setup ## start-up CPU time of esg --help, as a ratio to importing typer
	@$(BIN)/python -m bench.startup

.PHONY: bench-page
bench-page: setup ## the live page over 1,000 nodes of 8 GPUs: time until it is drawn, bytes, CPU time of the servers (needs Chromium)
	@$(BIN)/python -m bench.page

.PHONY: bench-policies
bench-policies: setup ## cost of splitting the SLO: policy esg against exact; writes docs/policies.md
	@$(BIN)/python -m studies.plans.policies

.PHONY: bench-objective
bench-objective: setup ## requests in time and their cost by objective and spread of run times; writes docs/objective.md
	@$(BIN)/python -m studies.plans.objective

# Long simulations run compiled, as in the image, where there is a C compiler.
SIMULATOR := $(if $(shell command -v cc),$(COMPILED))
SIMULATE := $(if $(SIMULATOR),PYTHONPATH=$(CURDIR)/build/compiled) $(BIN)/python -P

.PHONY: bench-warm
bench-warm: setup $(SIMULATOR) ## requests in time, what is set aside, and fewest nodes of reserved and pooled pods (WARM="--requests 2500 --seeds 1": minutes); writes docs/warm.md
	@$(SIMULATE) -m studies.plans.warm $(WARM)

.PHONY: limit
limit: setup $(SIMULATOR) ## limits of the cost, and where the money goes, under the nine settings (minutes); writes docs/limit.md; ESG_DATA=DIR: also measured profiles and keep-alive rules (LIMIT="--requests 8000 --seeds 3": longer)
	@$(SIMULATE) -m studies.plans.limit $(LIMIT)
	@$(if $(ESG_DATA),$(SIMULATE) -m studies.plans.limit --data $(ESG_DATA) $(LIMIT))
	@$(if $(ESG_DATA),$(SIMULATE) -m studies.plans.keep_alive --data $(ESG_DATA))

.PHONY: interference
interference: setup $(SIMULATOR) ## slowdown of models side by side by gpulet's pairs, and what placement could gain (minutes); ESG_DATA=DIR is needed; writes docs/interference.md
	@$(SIMULATE) -m studies.interference.command --data $(ESG_DATA)

.PHONY: bench-simulator
bench-simulator: setup $(if $(AGAINST),$(SIMULATOR)) ## events a second, a million requests, and memory at 100,000 and a million; AGAINST=COMMIT: events a second next to a commit's (minutes)
	@$(BIN)/python -m bench.simulator$(if $(AGAINST),_against $(AGAINST) $(if $(SIMULATOR),--compiled build/compiled))

.PHONY: bench-sweep
bench-sweep: setup ## a sweep of the simulator by one Dask worker of this machine, and by two (minutes)
	@$(BIN)/python -m bench.sweep

.PHONY: bench-first-request
bench-first-request: setup ## seconds and lines from `git clone`, with empty caches, to the answer of the tutorial's models (minutes)
	@$(BIN)/python -m bench.first_request

.PHONY: colocation
colocation: setup ## training in the share that inference leaves, in the simulator (minutes); writes docs/colocation.md (COLOCATION=--minutes 60: longer)
	@$(BIN)/esg colocate $(COLOCATION)

.PHONY: paper
paper: setup $(SIMULATOR) ## the ESG paper's evaluation in the simulator (an hour of CPU time); writes docs/paper.md (PAPER=--continue: goes on)
	@$(SIMULATE) $(BIN)/esg paper $(PAPER)

.PHONY: paper-measured
paper-measured: setup $(SIMULATOR) ## the same on measured profiles and arrivals of others in ESG_DATA=DIR; writes its part of docs/paper.md
	@$(SIMULATE) $(BIN)/esg paper --data $(data) $(PAPER)

.PHONY: equal-costs
equal-costs: setup $(SIMULATOR) ## `warm` and the cheapest baseline at 95 and 99 % under all nine settings (half an hour of CPU time); writes its part of docs/paper.md
	@$(SIMULATE) -m studies.paper.equal_costs

.PHONY: bench-openb
bench-openb: setup ## a cluster filled with the openb trace: ours against best fit and FGD (ESG_DATA=DIR; minutes); writes docs/placement.md
	@$(BIN)/python -m bench.openb --data $(data)

.PHONY: oracles
oracles: setup ## hold the schedulers of training clusters to published figures (ESG_DATA=DIR; an hour of CPU time); writes docs/jobs.md
	@$(BIN)/python -m studies.oracles --data $(data) --write docs/jobs.md

.PHONY: documents
documents: setup ## generate files from the code: CRDs, samples, docs/reference, the chart's schema, gRPC's descriptors
	@$(BIN)/esg crds > deploy/crds/esg-scheduler.io.yaml
	@$(BIN)/esg samples --out deploy/samples
	@$(BIN)/esg reference --out docs/reference
	@$(BIN)/python -m helm.documents
	@$(BIN)/python -m tools.descriptors

# The release builds the image of arm64 by emulation; a requirement without a wheel would need a compiler there.
.PHONY: image-wheels
image-wheels: setup ## show that every requirement of the image has a wheel for amd64 and arm64
	@for architecture in x86_64 aarch64; do \
	    $(BIN)/uv pip install --quiet --dry-run --python $(BIN)/python --python-platform $$architecture-manylinux_2_28 \
	        --python-version 3.13 --only-binary :all: --require-hashes --target build/wheels-$$architecture \
	        -r requirements/run.txt || exit 1; \
	    echo "$$architecture: every requirement has a wheel"; \
	done

.PHONY: guards
guards: setup ## render deploy/guards.yaml from the chart's policies (needs Go)
	@$(BIN)/python -m tests.chart.guards_file

.PHONY: docs
docs: setup ## build the documentation site into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

.PHONY: dashboard-picture
dashboard-picture: setup ## draw the dashboard after the demo, from a real Prometheus (minutes); writes docs/dashboard.png
	@$(BIN)/python -m tests.chart.dashboard_picture

.PHONY: format
format: setup ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

.PHONY: lint
lint: setup ## style, names and wording, layers of the packages, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tools.naming
	$(BIN)/lint-imports
	$(LATER) $(BIN)/mypy

.PHONY: lint-chart
lint-chart: setup $(CHECKERS) ## check the chart with checkov and kube-score, the Dockerfile with hadolint (needs Go)
	@$(BIN)/python -m tests.testbed.binaries helm kube-score >/dev/null
	@$(BIN)/pytest -q tests/chart/test_findings.py
