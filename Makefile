# Needs Python 3.11 or newer with its headers, a C compiler and make; everything else is installed into .venv.

BROKER ?= embedded
# The tests wait for clocks and brokers more than for processors.
WORKERS ?= 6
# How often make kill-spark, make kill-lakehouse, make kill-work and make kill-queue kill, and make calm runs the tests.
ROUNDS ?= 100
calm: ROUNDS = 10
# What make test-spark runs on.
PYSPARK ?= 4.2
# Which of them.
ONLY ?= packages/kadence-spark/tests
# How long make soak begins new rounds.
MINUTES ?= 10
# How many simulations make soak-work, soak-alphabet and soak-queues run, and how many stories make attack-work.
SEEDS ?= 1000
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$each" && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check -q
PACKAGES := $(addprefix packages/,kadence kadence-schemas kadence-broker kadence-spark kadence-cli)
# The package whose tests make test runs; without it all of them, and those of several packages.
PACKAGE ?=
# Where `tests` is found by programs that are no tests: it is one package in as many folders.
TESTS := $(CURDIR):$(subst $(eval ) ,:,$(addprefix $(CURDIR)/,$(PACKAGES)))
# Compiled as they stand; setup.py has the same.
ONE_SOURCE := $(addprefix packages/kadence/src/kadence/,records/fetched.py consumer/_decoded_records.py $(addprefix consumer/fetch/, \
	_fetch_collector.py _iteration.py _partition_reader.py _steps.py) share/application/_marks.py)
# What the installed package is made of; a change of one of these installs it again.
BUILT_FROM := pyproject.toml $(addsuffix /pyproject.toml,$(PACKAGES)) packages/kadence/setup.py $(shell find packages/kadence/src \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' \)) $(ONE_SOURCE)

.PHONY: help demo test test-heavy calm durations test-pythons pythons test-spark soak attack hold coverage check-browser check-memory check-threads screens lint pyright format generate bench bench-decode bench-gil bench-members bench-read bench-spark bench-stages bench-work parity-groups parity-json parity-pushdown parity-schemas parity-spark test-franz-go test-librdkafka kill-spark kill-lakehouse kill-work kill-queue soak-work soak-alphabet soak-queues attack-work docs site first-record wheel clean

help:
	@echo "make demo            a consumer group and Spark on 336,776 real records (BROKER=kafka: on real Apache Kafka)"
	@echo "make test            the tests (PACKAGE=kadence-spark: of this package; ARGS='-m \"not kafka and not heavy\"' and the like reach pytest; WORKERS=0 for one process)"
	@echo "make test-heavy      those of a minute each, and more parameters, which make test leaves out"
	@echo "make calm            make test ROUNDS times (10), every second time beside a load of 8: a line each, and what failed"
	@echo "make durations       the tests again, and how long each file takes, by which runs are ordered"
	@echo "make test-pythons    the tests of the core on the wheels for other Pythons (PYTHONS='3.14 3.11-musl /path/to/python'; without it on all that are found)"
	@echo "make pythons         the Pythons of these that few machines have, 3.14 and 3.11-musl, from Debian's packages"
	@echo "make test-spark      the tests of the Spark room with another PySpark (PYSPARK=4.2)"
	@echo "make soak            property tests, simulations and fuzzing with other seeds (MINUTES=10; SEED=n repeats a round)"
	@echo "make attack          a million damaged or lying frames, answers, documents and directories (ARGS='avro --count 5000')"
	@echo "make hold            C calls that hold the interpreter for 15 and for 30 s, which must not cost the membership"
	@echo "make kill-spark      kill -9 of a Spark application ROUNDS times, every row accounted for (BROKER=kafka, SINK=topic, ARGS='--seed N')"
	@echo "make kill-lakehouse  the same with a Delta and an Iceberg table, also right before and after their commits; DuckDB counts (ARGS='--drivers 2': two applications on the same tables)"
	@echo "make kill-work       kill -9 of members that run Consumer.process; every record, key order and repeats accounted for (BROKER=kafka, SINK=topic)"
	@echo "make kill-queue      kill -9 of members of a share group that run ShareConsumer.process; every record and delivery accounted for (BROKER=kafka)"
	@echo "make soak-work       simulations of Consumer.process: kills, trouble, every record accounted for (SEEDS=1000)"
	@echo "make soak-queues     simulations of share groups, each step beside Kafka's rules (SEEDS=1000)"
	@echo "make soak-alphabet   simulations of consumers and process drawn from all that a program and a cluster may do (SEEDS=1000)"
	@echo "make attack-work     random stories of Consumer.process on a real cluster: every record accounted for (SEEDS=1000, BROKER=kafka)"
	@echo "make lint            ruff, mypy --strict, the directions between rooms, generated code up to date"
	@echo "make pyright         whether pyright takes and refuses the same user programs as mypy does (downloads 75 MB)"
	@echo "make bench           Kadence beside the other clients on one real Kafka (ARGS='--rows iteration', ARGS='--help')"
	@echo "make bench-stages    where the time of one record goes; bench-decode: decoding alone; bench-gil: the interpreter"
	@echo "make bench-spark     Kadence's Spark source beside Spark's JVM connector"
	@echo "make bench-read      a topic as a pandas frame: kadence.read beside confluent-kafka and pandas, 2 minutes"
	@echo "make bench-members   10,000 members held by the embedded broker; joins to a stable group beside Apache Kafka"
	@echo "make bench-work      process beside the parallel consumer for Java, pyrallel-consumer and a thread pool, 15 minutes"
	@echo "make parity-groups   random requests to the embedded broker and to Apache Kafka, every answer compared (ARGS='mixed --first 500')"
	@echo "make test-franz-go   franz-go's own integration tests against the embedded broker (needs go; ARGS='TestTxn')"
	@echo "make test-librdkafka librdkafka's own integration tests against it (Debian; needs gcc, npm, OpenSSL's and zstd's headers)"
	@echo "make parity-spark    the same options to Spark's JVM connector and to Kadence's source, and random lives of streams, every row compared"
	@echo "make parity-json     the same JSON documents to from_json and to Kadence's source, every row compared (ARGS='--seed 5')"
	@echo "make parity-schemas  random Avro, Protobuf and JSON schemas and other versions of them, every value beside Java's and Google's (ARGS='--seed 5')"
	@echo "make parity-pushdown 1,000 random queries over one load(), with Spark pushing filters and without (ARGS='--seed 5')"
	@echo "make docs            write the generated pages of docs/"
	@echo "make site            the documentation as a site, in build/site (strict: a broken link fails it)"
	@echo "make first-record    the time from a fresh clone to the first record read, in parts (BROKER=kafka: on real Kafka)"
	@echo "make wheel           the source distribution and the wheel, in dist (GLIBC=2.17: for older Linux; ARGS=--try)"
	@echo "make check-browser   kadence top --serve in a headless Chromium, which apt-get installs where it is missing"
	@echo "make check-memory    AddressSanitizer over the compiled code, while the collector lets other threads in (needs gcc and libasan)"
	@echo "make check-threads   ThreadSanitizer over the native heartbeat, the poller and the compiled readers of records (needs gcc and libtsan)"
	@echo "make screens         draw the pictures of docs/top.md anew"
	@echo "make coverage        the tests again, with line and branch coverage"

demo: $(VENV)/.has-demo
	@$(RUN) -m examples.demo --broker $(BROKER) $(ARGS)

# Bytecode is worth its disk: each process of a run imports every test, and hundreds of short ones Kadence and pandas.
unexport PYTHONDONTWRITEBYTECODE

# A test's Java lives for seconds, in which the optimising compiler costs more than it gains; half of Spark's time went there.
test test-heavy test-spark: export JAVA_TOOL_OPTIONS ?= -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
# These have Spark compile the queries of the shared session, as it does for users.
test-heavy test-spark: export SPARK_CODEGEN := 1

# The same order of sets and the same examples each time; make soak tries others.
test: export PYTHONHASHSEED ?= 0
test: $(VENV)/.has-java-classes
	@$(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not heavy" $(if $(PACKAGE),packages/$(PACKAGE)/tests) $(ARGS)

calm: $(VENV)/.has-test
	@$(RUN) tools/calm.py --rounds $(ROUNDS) -- $(ARGS)

durations: override ARGS += --keep-durations
durations: test

test-heavy: $(VENV)/.has-test
	@$(RUN) -m pytest -m heavy $(ARGS)

test-pythons: export PYTHONS ?=
test-pythons: export WORKERS := $(WORKERS)
test-pythons: $(VENV)/.has-package $(VENV)/.has-zig
	@$(RUN) tools/pythons.py $(ARGS)

pythons: $(VENV)/.has-package
	@$(RUN) tools/get_pythons.py $(ARGS)

# Beside the newest PySpark the oldest one whose streams we take: its files alone, before the others on the path.
test-spark: export PYTHONHASHSEED ?= 0
test-spark: $(VENV)/pyspark-$(PYSPARK)
	@PYTHONPATH=$(CURDIR)/$< $(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not kafka and not heavy" $(ARGS) $(ONLY)

soak: $(VENV)/.has-fuzz
	@$(RUN) tools/soak.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) -- $(ARGS)

attack: $(VENV)/.has-test
	@$(RUN) tools/attack.py $(ARGS)

hold: $(VENV)/.has-test
	@for seconds in 15 30; do KADENCE_HOLD=$$seconds $(RUN) -m pytest packages/kadence/tests/consumer/test_native_heartbeat.py -q -rP $(ARGS) || exit 1; done

kill-spark: $(VENV)/.has-test
	@$(RUN) tools/kill_$(if $(filter topic,$(SINK)),transactions,spark).py --rounds $(ROUNDS) --broker $(BROKER) $(ARGS)

kill-lakehouse: $(VENV)/.has-test
	@$(RUN) tools/kill_lakehouse.py --rounds $(ROUNDS) --broker $(BROKER) $(ARGS)

kill-work: $(VENV)/.has-test
	@$(RUN) tools/kill_work.py --rounds $(ROUNDS) --broker $(BROKER) $(if $(SINK),--sink $(SINK)) $(ARGS)

kill-queue: $(VENV)/.has-test
	@$(RUN) tools/kill_queue.py --rounds $(ROUNDS) --broker $(BROKER) $(ARGS)

soak-work: $(VENV)/.has-test
	@PYTHONHASHSEED=0 $(RUN) tools/soak_work.py --seeds $(SEEDS) $(ARGS)

soak-queues: $(VENV)/.has-test
	@PYTHONHASHSEED=0 $(RUN) tools/soak_work.py --queues --seeds $(SEEDS) $(ARGS)

soak-alphabet: $(VENV)/.has-test
	@PYTHONHASHSEED=0 $(RUN) tools/soak_work.py --alphabet --seeds $(SEEDS) $(ARGS)

attack-work: $(VENV)/.has-test
	@PYTHONHASHSEED=0 $(RUN) tools/attack_work.py --seeds $(SEEDS) --broker $(BROKER) $(ARGS)

coverage: $(VENV)/.has-test
	@$(RUN) -m pytest --cov --cov-report=term-missing:skip-covered $(ARGS)

check-browser: $(VENV)/.has-test
	@command -v chromium-headless-shell >/dev/null || { apt-get update && \
		apt-get install -y --no-install-recommends chromium-headless-shell; } >/dev/null
	@$(RUN) -m pytest packages/kadence-cli/tests/cli/top/test_browser.py $(ARGS)

check-memory: $(VENV)/.has-test
	@$(RUN) tools/check_memory.py $(ARGS)

check-threads: $(VENV)/.has-test
	@$(RUN) tools/check_threads.py $(ARGS)

screens: $(VENV)/.has-test
	@$(RUN) tools/screens.py

lint: $(VENV)/.has-test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) tools/generate.py --check
	$(VENV)/bin/lint-imports
	$(RUN) -m mypy

pyright: $(VENV)/.has-test
	@$(PIP) install --group pyright
	@$(RUN) -m pytest tests/typed $(ARGS)

format: $(VENV)/.has-test
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

generate: $(VENV)/.has-test
	$(RUN) tools/generate.py

bench: $(VENV)/.has-test
	@$(RUN) bench/run.py $(ARGS)

bench-decode: $(VENV)/.has-test
	@$(RUN) bench/decode.py $(ARGS)

bench-stages: $(VENV)/.has-test
	@$(RUN) bench/stages.py $(ARGS)

bench-gil: $(VENV)/.has-test
	@$(RUN) bench/gil.py $(ARGS)

bench-members: $(VENV)/.has-test
	@$(RUN) bench/members.py $(ARGS)

bench-read: $(VENV)/.has-test
	@$(RUN) bench/read.py $(ARGS)

bench-spark: $(VENV)/.has-test
	@$(RUN) bench/spark.py $(ARGS)

bench-work: $(VENV)/.has-test
	@$(RUN) bench/work.py $(ARGS)

parity-groups: $(VENV)/.has-test
	@PYTHONPATH=$(TESTS) $(RUN) -m tests.interop.sequences $(ARGS)

test-franz-go: $(VENV)/.has-test
	@$(RUN) tools/peer_suites.py franz-go $(ARGS)

test-librdkafka: $(VENV)/.has-test
	@$(RUN) tools/peer_suites.py librdkafka $(ARGS)

parity-json: $(VENV)/.has-test
	@PYTHONPATH=$(TESTS) $(RUN) -m tests.spark.decode.parity $(ARGS)

parity-pushdown: $(VENV)/.has-test
	@PYTHONPATH=$(TESTS) $(RUN) -m tests.spark.source.pushdown $(ARGS)

parity-schemas: $(VENV)/.has-test
	@PYTHONPATH=$(TESTS) $(RUN) -m tests.registry.parity $(ARGS)

parity-spark: $(VENV)/.has-test
	@$(RUN) bench/parity.py $(ARGS)

docs: $(VENV)/.has-test
	$(RUN) tools/docs.py

# The variable silences a notice of the theme's makers about the future of mkdocs.
# Without --quiet, which keeps warnings from --strict, too.
site: $(VENV)/.has-site
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict
	@echo "wrote build/site/index.html"

first-record: $(RUN)
	@$(RUN) bench/first_record.py --broker $(BROKER) $(ARGS)

wheel: $(VENV)/.has-package $(if $(GLIBC),$(VENV)/.has-zig)
	@$(RUN) tools/packages.py $(if $(GLIBC),--glibc $(GLIBC)) $(ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .import_linter_cache
	rm -rf packages/*/build
	find packages \( -name '*.so' -o -name '*.egg-info' \) -prune -exec rm -rf {} +

# Made with the options of Java that make test has. What is there already is not made again.
$(VENV)/.has-java-classes: export JAVA_TOOL_OPTIONS ?= -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
$(VENV)/.has-java-classes: $(VENV)/.has-test tools/java_archives.py
	@$(RUN) tools/java_archives.py
	@touch $@

# Each stamp says what the environment holds; demo's own needs are fewer than the tests'.
$(VENV)/.has-demo: $(BUILT_FROM) | $(RUN)
	@echo "installing Kadence and what the demo needs into $(VENV) (Spark is large: minutes the first time)"
	@$(PIP) install $(addprefix --editable ,$(PACKAGES)) --group demo || { echo "installing failed: see pip's last lines above" >&2; exit 1; }
	@touch $@

$(VENV)/.has-test: $(BUILT_FROM) | $(RUN)
	@echo "installing Kadence and what its tests need into $(VENV) (Spark is large: minutes the first time)"
	@$(PIP) install $(addprefix --editable ,$(PACKAGES)) --group dev || { echo "installing failed: see pip's last lines above" >&2; exit 1; }
	@touch $@ $(VENV)/.has-demo

$(VENV)/.has-site: pyproject.toml | $(RUN)
	@$(PIP) install --group site || { echo "installing failed: see pip's last lines above" >&2; exit 1; }
	@touch $@

$(VENV)/.has-package: $(VENV)/.has-test
	@$(PIP) install --group package || { echo "installing failed: see pip's last lines above" >&2; exit 1; }
	@touch $@

$(VENV)/.has-zig: $(VENV)/.has-test
	@$(PIP) install --group zig || { echo "installing failed: see pip's last lines above" >&2; exit 1; }
	@touch $@

# libFuzzer for Python, where there is a wheel of it; elsewhere mutations alone are tried.
$(VENV)/.has-fuzz: $(VENV)/.has-test
	@$(PIP) install --only-binary atheris --group fuzz || echo "no atheris for this Python: fuzzing goes on without coverage"
	@touch $@

$(VENV)/pyspark-%: | $(VENV)/.has-test
	@echo "installing PySpark $* into $@"
	@rm -rf $@.part
	@$(PIP) install --no-deps --target $@.part 'pyspark==$*.*' || { echo "installing failed: see pip's last lines above" >&2; exit 1; }
	@mv $@.part $@

$(RUN):
	@test -n "$(PYTHON)" || { echo "Kadence needs Python 3.11 or newer, and none is on PATH: install it, or say make PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: on Debian and Ubuntu, apt-get install python3-venv." >&2; exit 1; }
	@$(PIP) install --upgrade 'pip>=25.1' || { rm -rf $(VENV); echo "pip could not be brought up to date: is the package index reachable?" >&2; exit 1; }
