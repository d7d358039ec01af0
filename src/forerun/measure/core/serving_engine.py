"""transformers' continuous batching as an engine that can be driven and watched: one manager thread for one model."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from .errors import EngineError

# Attention that needs no kernels besides PyTorch's own. The first that serves a few requests is used.
ATTENTION = ("paged|sdpa", "paged|eager")
STOP_S = 5.0
WARM_UP_S = 12.0
POLL_S = 0.2
COLUMNS = (
    *("start_s", "prepare_ms", "step_ms", "update_ms", "decode", "context"),
    *("prefill", "pairs", "finished", "waiting", "used_blocks"),
)
UNKNOWN = (math.nan,) * 7  # the load of an iteration that could not be read
FACTS = (
    *("block_size", "max_requests_per_batch", "max_memory_percent", "scheduler_type", "safety_margin"),
    *("allow_block_sharing", "use_async_batching", "use_cuda_graph", "max_blocks_per_request"),
)


@dataclass
class Iterations:
    """What every iteration of the engine computed and how long its parts took, in the columns of COLUMNS.

    `prepare` is the scheduler and the input tensors, `step` the forward pass with the wait for the device, `update` the
    bookkeeping of new tokens. They are timed around the engine's own methods, which the engine calls in this order.
    """

    processor: Any
    rows: list[tuple[float, ...]] = field(default_factory=list)
    at: float = 0.0  # when the last iteration ended
    _begun: tuple[float, float] = (0.0, 0.0)
    _stepped: float = 0.0
    _load: tuple[float, ...] = ()

    def watch(self) -> None:
        """Puts the timed methods in the place of the processor's."""
        processor = self.processor
        prepare, step, update = processor.prepare_next_batch, processor._generation_step, processor.update_batch
        clock = time.perf_counter

        def timed_prepare() -> bool:
            begin = clock()
            ready: bool = prepare()
            if ready:
                self._begun = (begin, clock())
                try:
                    self._load = self._loaded()
                except AttributeError:  # another version of the library; the run itself goes on
                    self._load = UNKNOWN
            self.at = clock()
            return ready

        def timed_step(model: Any) -> None:
            begin = clock()
            step(model)
            self._stepped = clock() - begin

        def timed_update() -> None:
            begin = clock()
            update()
            (start, prepared), end = self._begun, clock()
            times = (1e3 * (prepared - start), 1e3 * self._stepped, 1e3 * (end - begin))
            self.rows.append((start, *times, *self._load))
            self.at = end

        processor.prepare_next_batch, processor._generation_step = timed_prepare, timed_step
        processor.update_batch = timed_update

    def release(self) -> None:
        """Gives the processor its own methods back, so that nothing refers to it any more."""
        for name in ("prepare_next_batch", "_generation_step", "update_batch"):
            self.processor.__dict__.pop(name, None)

    def _loaded(self) -> tuple[float, ...]:
        """The load of the prepared iteration; a request's offset already includes its tokens of this iteration."""
        decode = context = prefill = pairs = finished = 0
        for future in self.processor.inputs_and_outputs.requests_in_batch:
            state, new = future.state, future.query_length
            if state.generated_tokens:
                decode, context = decode + 1, context + state.position_offset
            else:
                past = state.position_offset - new
                prefill, pairs = prefill + new, pairs + new * past + new * (new + 1) // 2
                finished += bool(future.has_new_token)
        cache = self.processor.cache
        free = getattr(cache, "get_num_free_blocks", None)  # not in every version of the library
        used = cache.num_blocks - free() if free is not None else math.nan
        waiting = len(self.processor.scheduler.waiting_requests)
        return decode, context, prefill, pairs, finished, waiting, used


class Engine:
    """Serves one model. Requests are token ids; answers have exactly the tokens asked for, as no token ends them."""

    def __init__(self, model: Any, settings: dict[str, Any], attention: str) -> None:
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        model.requires_grad_(False)
        attention = _known(attention)
        model.set_attn_implementation(attention)
        if model.config._attn_implementation != attention:
            raise EngineError(f"the model does not support {attention}")
        generation = GenerationConfig(max_new_tokens=16, do_sample=False, eos_token_id=-1)
        config = ContinuousBatchingConfig(allow_block_sharing=False, use_async_batching=False, **settings)
        self.model, self.attention = model, attention
        self.manager = model.init_continuous_batching(generation, continuous_batching_config=config)
        self.manager.warmup()  # makes the KV cache; without CUDA graphs it runs nothing
        self.processor = self.manager.batch_processor
        self.iterations = Iterations(self.processor)
        self.iterations.watch()
        self.manager.start()

    def facts(self) -> dict[str, Any]:
        """The settings that the engine ended up with."""
        config, cache = self.manager.continuous_batching_config, self.processor.cache
        known = {name: getattr(config, name, None) for name in FACTS}
        return {
            **known,
            "attention": self.attention,
            **{name: getattr(cache, name, None) for name in ("num_blocks", "max_batch_tokens", "num_groups")},
        }

    def submit(self, name: str, prompt: list[int], output: int) -> None:
        added = self.manager.add_request(
            prompt, request_id=name, max_new_tokens=output, record_timestamps=True, eos_token_id=-1
        )
        if added is None:
            raise self.failure()

    def answer(self, timeout: float) -> Any:
        """The next finished request, or None after the timeout. Raises if the engine failed."""
        result = self.manager.get_result(timeout=max(timeout, 1e-4))
        if result is None:
            if self.broken() is not None:
                raise self.failure()
        elif result.error:
            raise self.failure(result.error)
        return result

    def broken(self) -> Exception | None:
        error: Exception | None = self.manager.background_thread_status.fatal_error
        return error if error is not None or self.manager.is_running() else EngineError("its thread ended")

    def failure(self, text: str = "") -> Exception:
        """The error that ended the engine's thread, where there is one."""
        error = self.broken()
        return error if error is not None else EngineError(text or "the engine refused a request")

    def active(self) -> list[Any]:
        """The requests that have begun and not finished."""
        return list(self.processor.scheduler.active_requests.values())

    def waiting(self) -> int:
        """How many requests have not begun."""
        return len(self.processor.scheduler.waiting_requests) + self.manager.input_queue.qsize()

    def clear(self, seconds: float = STOP_S) -> None:
        """Cancels whatever is not finished, and waits until the engine is idle."""
        until = time.perf_counter() + seconds
        while True:
            scheduler = self.processor.scheduler
            for name in [*list(scheduler.active_requests), *list(scheduler.waiting_requests)]:
                self.manager.cancel_request(name)
            if self.manager.input_queue.empty() and not self.processor.has_pending_requests():
                break
            if self.broken() is not None:
                raise self.failure()
            if time.perf_counter() > until:
                raise EngineError("its requests could not be cancelled")
            time.sleep(0.002)
        while self.manager.get_result(timeout=1e-4) is not None:
            pass
        self.iterations.rows.clear()

    def warm_up(self, prompts: list[list[int]]) -> None:
        """Serves short answers to many prompts at once, then to a few: kernels are loaded and memory is reserved."""
        until = time.perf_counter() + WARM_UP_S
        for i, part in enumerate((prompts, prompts[:4])):
            for j, prompt in enumerate(part):
                self.submit(f"warm-{i}-{j}", prompt, 6)
            left = len(part)
            while left:
                left -= self.answer(POLL_S) is not None
                if time.perf_counter() > until:
                    raise EngineError(f"the warm-up took longer than {WARM_UP_S:.0f} s")
        self.clear()

    def close(self) -> bool:
        """Ends the thread and frees the KV cache; False if the thread did not end."""
        manager = self.manager
        if manager.is_running():
            manager.stop(block=True, timeout=STOP_S, hard_stop=True)
        ended = not manager.is_running()
        self.iterations.release()
        if ended:
            manager.destroy()
            manager.batch_processor = None
        self.iterations = Iterations(None)
        self.processor = self.manager = self.model = None
        return ended


def _known(attention: str) -> str:
    """The name of a paged attention in this version of the library: newer ones call it like that without pages."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return attention if attention in ALL_ATTENTION_FUNCTIONS else attention.removeprefix("paged|")
