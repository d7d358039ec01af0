"""Shared by all tests: a cache and a store of their own, and small networks written here."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import warm
from filelock import FileLock
from hypothesis import settings
from web_server import Served, serving

if TYPE_CHECKING:
    from forerun.predictors.cases import TrainingCases

MAIN = "from forerun.cli import main; main()"

if "PYTEST_XDIST_WORKER" in os.environ:  # a worker has a core; more threads than cores wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples every time, so that CI says the same of the same code; new ones: pytest --hypothesis-profile explore
settings.register_profile("steady", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("steady")


#: Files whose fixtures and tests take longest, the longest first.
LONG = (
    "training/test_train_smoke.py", "runtimes/test_outside_runtime.py", "predictors/test_outside_package.py",
    "evaluate/test_ablation.py", "evaluate/test_study.py", "predictors/test_predictors.py", "cli/test_docs.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first: no worker begins one when the others have nothing left to do, and the work of their
    fixtures is not done twice, since workers take from the end of each other's lists."""
    places = {f"tests/{name}": number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither read nor fill the user's cache and store. All workers and commands of a run share one cache, so
    that every model is captured once; $FORERUN_TEST_CACHE keeps it for the next run, which finds what the same code
    captured."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # each worker has a folder of its own in that of the run
    os.environ["FORERUN_CACHE"] = os.environ.get("FORERUN_TEST_CACHE") or str(folder / "cache")
    os.environ["FORERUN_STORE"] = str(tmp_path_factory.mktemp("store"))
    os.environ["FORERUN_PATIENCE_S"] = "3600"  # a slow machine prints no more than a fast one
    os.environ["FORERUN_BUSY_SHARE"] = "1"  # tests share their machine, and what they measure is kept all the same


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, _own_folders: None) -> Iterator[Served]:
    """One server, for each test worker, of the tests that only ask; its store has nothing of what other tests measured
    before."""
    store = str(tmp_path_factory.mktemp("store"))
    with serving(tmp_path_factory.mktemp("server"), "--rate", "0", forked=True, FORERUN_STORE=store) as found:
        yield found


@pytest.fixture(scope="session")
def few_cases(tmp_path_factory: pytest.TempPathFactory, _own_folders: None) -> TrainingCases:
    """Rows of five small CNNs on our GPU and CPU, and of a U-Net and an autoencoder on the GPU: real, and captured in
    seconds, by one worker for all."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / "few_cases.lock"):
        stored = folder / "few_cases"
        if not stored.exists():
            stored.write_bytes(pickle.dumps(_few_cases()))
        return cast("TrainingCases", pickle.loads(stored.read_bytes()))


def _few_cases() -> TrainingCases:
    from forerun.data.store import Store
    from forerun.training.gather import gather

    cnns = [f"cnn:depth={d},filters={f},classes=10" for d, f in ((2, 16), (4, 24), (5, 48), (8, 16), (8, 32))]
    others = ["unet:base=44,levels=3", "autoencoder:image=32,width=16,levels=3,latent=64,variational=1"]
    where = f"model in {(*cnns, *others)} and (device = 'h200' or family = 'cnn')"
    return gather(Store(), public=False, where=where, operators_kept=0)


@pytest.fixture(scope="session", autouse=True)
def _warm_pythons() -> Iterator[None]:
    yield
    warm.close_all()


@pytest.fixture
def run_forerun(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command in a process of its own, forked from one that has imported the libraries."""

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return warm.run(["-c", MAIN, *words], cwd=tmp_path, env=_environment(env))

    return run


@pytest.fixture
def start_forerun(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command as a user's first one is: in a fresh interpreter, which imports what it needs by itself."""

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", MAIN, *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=_environment(env), timeout=300)

    return run


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name != "COLUMNS"}, **more}
