# make predict   a first answer: makes the environment, installs, predicts resnet50 on an A100
# make test      installs what the tests need and runs them all
# make lint      ruff, mypy, and which package may import which
# make wheel     builds the wheel and tries it in an empty environment, away from the checkout
# make train     fits the default predictor to the store and says how far its answers move (hours; stopped, it goes on);
#                DATA=FOLDER imports the published sets in it first (docs/DATASET.md); STEPS, FOLDS, OPERATORS and
#                WHERE (an SQL condition on rows of models) make it shorter
# make golden    compares 300 predictions with a golden file to the byte (minutes)
# make bench     the speed figures of the README (benchmarks/speed.py)
# make capture   captures 200 timm models and the whole catalogue (nightly: about half an hour)
# make files     asks every ONNX file that well-known PyPI packages carry (nightly: minutes; needs the network)
# make coverage  every model of the catalogue on every device (nightly: hours; stopped, it goes on where it was)

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Tests convert real Keras and Paddle models; their environments live in the checkout.
export FORERUN_HOME ?= $(CURDIR)/.converters

# What `make train` fits goes here.
WEIGHTS ?= build/weights
TEACHING := timm pytorch_gpu_benchmark neusight vidur aiconfigurator

.PHONY: predict test browser lint wheel train golden bench capture files coverage clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

predict: $(READY)
	$(BIN)/forerun predict resnet50 --device a100

test: $(READY) browser
	for env in keras paddle; do $(BIN)/forerun install $$env || echo "tests of $$env models are skipped"; done
	$(BIN)/pytest -n 2 --dist worksteal

# A real browser opens the pages in tests. Without one these tests are skipped, and say so.
browser: $(READY)
	@if $(BIN)/python tests/browser.py; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "installing Chromium with apt-get"; \
		{ apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium; } > /dev/null 2>&1; \
	else \
		echo "installing Chromium with Playwright"; $(BIN)/playwright install chromium > /dev/null 2>&1; \
	fi; \
	$(BIN)/python tests/browser.py || echo "no browser could be installed: tests that open pages are skipped"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(READY)
	$(BIN)/python benchmarks/wheel.py

train: $(READY)
	$(if $(DATA),for set in $(TEACHING); do $(BIN)/forerun data import $$set "$(DATA)/$$set" || exit; done)
	$(BIN)/forerun train default --out $(WEIGHTS) $(if $(STEPS),--steps $(STEPS)) $(if $(FOLDS),--folds $(FOLDS)) \
		$(if $(OPERATORS),--operators $(OPERATORS)) $(if $(WHERE),--where "$(WHERE)")
	$(BIN)/forerun predict resnet50 --device a100 --predictor $(WEIGHTS)

golden: $(READY)
	$(BIN)/python benchmarks/golden.py

bench: $(READY)
	$(BIN)/python benchmarks/speed.py

capture: $(READY)
	$(BIN)/python benchmarks/capture_all.py

files: $(READY)
	$(BIN)/python benchmarks/real_files.py --folder build/onnx

coverage: $(READY)
	$(BIN)/python benchmarks/answer_all.py --lines build/coverage.jsonl

clean:
	rm -rf .venv .converters build dist
