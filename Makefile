# make predict   a first answer: makes the environment, installs the core alone, predicts resnet50 on an A100
# make test      installs what the tests need and runs them all; FORERUN_TEST_CACHE=FOLDER keeps what they capture there
# make lint      ruff, mypy, and which package may import which
# make wheel     builds both wheels and tries them in an empty environment, away from the checkout
# make pages     builds the pages that are not committed, in build/pages: a report, predictors compared, the landscape
# make train     fits the default predictor to the store and says how far its answers move (hours; stopped, it goes on);
#                DATA=FOLDER imports the published sets in it first (docs/DATASET.md); STEPS, FOLDS, OPERATORS and
#                WHERE (an SQL condition on rows of models) make it shorter
# make gate      asks 500 frozen questions again: answers must be as committed, and no farther from measurements
#                (minutes); STAMP=1 notes that today's code predicts the same, WRITE=1 freezes its answers
# make golden    compares 300 predictions with a golden file to the byte (minutes)
# make bench     the speed figures of docs/PREDICT.md (benchmarks/speed.py)
# make capture   captures 200 timm models and the whole catalogue (nightly: about half an hour)
# make files     asks every ONNX file that well-known PyPI packages carry (nightly: minutes; needs the network)
# make coverage  every model of the catalogue on every device (nightly: hours; stopped, it goes on where it was)

PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
READY := .venv/.ready
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Tests convert real Keras and Paddle models; their environments live in the checkout.
export FORERUN_HOME ?= $(CURDIR)/.converters
# Tests and the gate start hundreds of processes: bytecode is written once, as on any machine of a user.
unexport PYTHONDONTWRITEBYTECODE

# What `make train` fits goes here.
WEIGHTS ?= build/weights
COMPARED := dummy,one-ratio,roofline,default,dippm,trappm,trees,regressors,mlp
TEACHING := timm pytorch_gpu_benchmark neusight vidur aiconfigurator

.PHONY: predict test browser converters lint wheel pages train gate golden bench capture files coverage clean

# The core is what a first answer needs; everything else is extras (pyproject.toml).
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $(CORE)

$(READY): $(CORE) packages/forerun-data/pyproject.toml
	$(PIP) -e '.[dev]' -e packages/forerun-data
	touch $(READY)

predict: $(CORE)
	$(BIN)/forerun predict resnet50 --device a100

test: $(READY) browser converters
	$(BIN)/pytest -n 2 --dist worksteal

converters: $(READY)
	for env in keras paddle; do $(BIN)/forerun install $$env || echo "tests of $$env models are skipped"; done

# A real browser opens the pages in tests. Without one these tests are skipped, and say so.
browser: $(READY)
	@if $(BIN)/python tests/helpers/browser.py; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "installing Chromium with apt-get"; \
		{ apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium; } > /dev/null 2>&1; \
	else \
		echo "installing Chromium with Playwright"; $(BIN)/playwright install chromium > /dev/null 2>&1; \
	fi; \
	$(BIN)/python tests/helpers/browser.py || echo "no browser could be installed: tests that open pages are skipped"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(READY)
	$(BIN)/python benchmarks/wheel.py

# The landscape's needs the tables of `forerun landscape import`.
pages: $(READY)
	mkdir -p build/pages
	$(BIN)/forerun report examples/unet.py:UNet --input-shape 3,96,128 --device v100-16gb,a100-sxm4-40gb,h200 \
		-o build/pages/report_unet.html
	$(BIN)/forerun evaluate $(COMPARED) --document build/pages/PREDICTORS.md --figures build/pages
	$(BIN)/forerun landscape experiments -o build/pages/LANDSCAPE.md || echo "the landscape's page is left out"

train: $(READY)
	$(if $(DATA),for set in $(TEACHING); do $(BIN)/forerun data import $$set "$(DATA)/$$set" || exit; done)
	$(BIN)/forerun train default --out $(WEIGHTS) $(if $(STEPS),--steps $(STEPS)) $(if $(FOLDS),--folds $(FOLDS)) \
		$(if $(OPERATORS),--operators $(OPERATORS)) $(if $(WHERE),--where "$(WHERE)")
	$(BIN)/forerun predict resnet50 --device a100 --predictor $(WEIGHTS)

gate: $(READY)
	$(BIN)/python benchmarks/gate.py $(if $(STAMP),--stamp) $(if $(WRITE),--write) $(if $(WORSE),--worse) \
		$(if $(FORERUN_TEST_CACHE),--cache $(FORERUN_TEST_CACHE))

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
