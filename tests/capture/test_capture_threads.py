"""A capture leaves the rest of the process alone: other threads, functions that the user has exchanged, the garbage
collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.modules import module as hooks

from forerun.frontends import load_graph
from forerun.workload import Workload

SHAPE = (6, 16)
PATCHED = [
    (nn.MultiheadAttention, "forward"), (nn.TransformerEncoderLayer, "forward"), (F, "has_torch_function"),
    (F, "has_torch_function_unary"), (F, "has_torch_function_variadic"),
]  # fmt: skip


class Encoder(nn.Module):
    """A layer that PyTorch has a fast path for; `meanwhile` is called while it runs."""

    def __init__(self, meanwhile: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.meanwhile = [meanwhile] if meanwhile else []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for call in self.meanwhile:
            call()
        return self.layer(x)


def captured(model: nn.Module, **settings: Any) -> str:
    return load_graph(Workload(model, input_shape=SHAPE, batch=2, **settings)).content_hash()


def process() -> list[Any]:
    """What of the process a capture may have touched."""
    return [
        *(vars(owner)[name] for owner, name in PATCHED), gc.isenabled(), gc.get_threshold(), list(gc.callbacks),
        list(hooks._global_forward_hooks), list(hooks._global_forward_pre_hooks),
    ]  # fmt: skip


def in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as fault:  # noqa: BLE001 - shown by the test
            found.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(120)
    assert found, "the other thread did not come to an end"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


class Overrides(torch.Tensor):
    """A tensor whose functions PyTorch asks it for."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.softmax:
            return "asked"
        return super().__torch_function__(func, types, args, kwargs or {})


def test_another_thread_sees_pytorch_as_it_is() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(1, 3, 16)
    with torch.no_grad():
        expected = layer(x)
    seen: list[Any] = []

    def other() -> None:
        with torch.no_grad():
            same = bool(torch.equal(layer(x), expected))
        seen.append((same, F.softmax(torch.randn(3).as_subclass(Overrides), dim=0), gc.isenabled()))

    before = process()
    captured(Encoder(lambda: in_a_thread(other)))
    assert seen
    assert set(seen) == {(True, "asked", True)}
    assert process() == before


def test_threads_that_capture_at_once_find_what_they_find_one_by_one() -> None:
    models = [
        lambda: captured(Encoder()), lambda: captured(Encoder(), mode="training"),
        lambda: captured(Encoder(), amp="fp16"),
        lambda: captured(nn.LSTM(16, 8, batch_first=True), mode="training"),
    ]  # fmt: skip
    before, expected = process(), [model() for model in models]
    both, found = threading.Barrier(len(models)), [""] * len(models)

    def run(i: int) -> None:
        both.wait(60)
        found[i] = models[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert found == expected
    assert process() == before


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


@pytest.mark.parametrize(("owner", "model"), [(nn.MultiheadAttention, Attends), (nn.TransformerEncoderLayer, Encoder)])
def test_a_users_own_forward_is_respected_and_stays(owner: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = captured(model())  # a first capture, and then the patch
    original, calls = owner.forward, []

    def mine(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(owner, "forward", mine)
    assert captured(model()) == captured(model())
    assert calls
    assert owner.forward is mine
    monkeypatch.undo()
    assert owner.forward is original
    assert captured(model()) == plain


def test_a_patch_that_is_set_during_a_capture_stays() -> None:
    original = nn.MultiheadAttention.forward
    found: list[Any] = []

    def set_one() -> None:
        if found:
            return
        kept = nn.MultiheadAttention.forward

        def mine(self: Any, *args: Any, **kwargs: Any) -> Any:
            return kept(self, *args, **kwargs)

        nn.MultiheadAttention.forward = mine  # type: ignore[method-assign]
        found.extend((kept, mine))

    try:
        captured(Encoder(lambda: in_a_thread(set_one)))
        kept, mine = found
        assert nn.MultiheadAttention.forward is mine
        nn.MultiheadAttention.forward = kept  # type: ignore[method-assign]
        layer = nn.MultiheadAttention(16, 2, batch_first=True)
        assert layer(*[torch.zeros(1, 3, 16)] * 3)[0].shape == (1, 3, 16)
        captured(Encoder())
    finally:
        nn.MultiheadAttention.forward = original  # type: ignore[method-assign]


def test_a_model_that_fails_leaves_nothing_behind() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("in the middle")

    before = process()
    with pytest.raises(Exception, match="in the middle"):
        captured(Fails())
    assert process() == before
    assert F.softmax(torch.randn(3).as_subclass(Overrides), dim=0) == "asked"


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was_found(enabled: bool) -> None:
    try:
        (gc.enable if enabled else gc.disable)()
        seen: list[bool] = []
        captured(Encoder(lambda: seen.append(gc.isenabled())))
        assert set(seen) == {enabled}
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_what_the_collector_frees_is_no_part_of_a_graph() -> None:
    class Cycle(nn.Module):
        """Makes a tensor that only the collector frees."""

        def __init__(self, collects: bool) -> None:
            super().__init__()
            self.layer, self.collects = nn.Linear(16, 16), collects

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ring: list[Any] = [self.layer(x)]
            ring.append(ring)
            del ring
            y = self.layer(x)
            if self.collects:
                gc.collect()
            return self.layer(y)

    lives = [[s.dies for s in load_graph(Workload(Cycle(c), input_shape=SHAPE)).storages] for c in (False, True)]
    assert lives[0] == lives[1]


def test_a_prediction_inside_a_prediction() -> None:
    inner: list[str] = []
    other = nn.Linear(16, 4)
    before, alone, plain = process(), captured(other), captured(Encoder())
    outer = captured(Encoder(lambda: inner.append(captured(other))))
    assert set(inner) == {alone}
    assert outer == plain
    assert process() == before
