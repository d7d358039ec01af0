"""Phase `serving`: drives transformers' continuous batching with requests, many short runs for every model built."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any

from . import host_probe, models, specs
from .errors import CaseTimeoutError, EngineError
from .serving_cases import KIND, Traffic, Unit, model_key, units
from .serving_engine import ATTENTION, Engine
from .serving_run import RAMP_S, WINDOW_S, Run
from .worker import RESTART, Worker, limit, preload, why

AVOID = "serving_avoid"  # kind of the line that says which attention broke the process for a model
RUN_S = 8.0  # a run with its window at the longest and its end; none begins with less time left
LEFT_MB = 3000.0  # memory still held after a model, above which a fresh process is needed
WARM_UP_REQUESTS = 16  # with the longest prompts, and as many with the shortest


class Serving(Worker):
    phase = "serving"

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        done = {(row["key"], row.get("repeat", 0)) for row in self.earlier if row.get("kind") == KIND}
        self.avoid = {(row["key"], row["attention"]) for row in self.earlier if row.get("kind") == AVOID}
        self.todo: list[tuple[dict[str, Any], Unit]] = []
        for spec in map(specs.load, args.spec):
            if spec.get("kind") == KIND:
                self.todo += [(spec, unit) for unit in units(spec, args.seed, done)]
        self.refused: dict[str, str] = {}  # why an attention that comes first was not used
        self.stuck = False  # whether the thread of an engine did not end
        preload({"hf"})
        _without_cudnn_attention()
        self.probe = not args.no_host_probe

    def run(self) -> int:
        if self.probe and self.todo:
            row = {"kind": "host", "key": "host-start", "when": "start", "status": "ok"}
            self.write({**row, **host_probe.measure(self.meter)})
        while self.todo and self.left_s() > RUN_S:
            self.rest()
            code = self._unit(*self.todo[0])
            if code:
                return code
            if not self.todo[0][1].cases or self.left_s() > RUN_S:
                self.todo.pop(0)
        self.print_end(sum(len(unit.cases) for _, unit in self.todo))
        return 0

    def _unit(self, spec: dict[str, Any], unit: Unit) -> int:
        """Builds a model and its engine once, and makes all runs of the unit with it."""
        first, begin = unit.cases[0], time.monotonic()
        shown = f"{spec['name']} {first.get('name')} r{unit.repeat}"
        self.now(KIND, specs.key_of(first), unit.repeat, first, spec["name"])
        built: models.Built | None = None
        try:
            with limit(2 * self.case_s):
                built = self._build(first)
                engine = self._start(built, unit)
        except Exception as error:  # noqa: BLE001 - a failure is a row
            status, reason = why(error)
            error.__traceback__ = None
            if not self.meter.is_broken_by(error) or not self._others_left(first):
                for case in unit.cases:
                    self._row(spec, unit, case, {"status": status, "reason": f"before the run: {reason}"})
            del built
            self.forget()
            print(f"{shown}: {status} before the run: {reason[:200]}", flush=True)
            return self._fresh(error)
        started_s = time.monotonic() - begin
        facts = {
            **built.facts,
            **self.refused,
            "attention": engine.attention,
            "engine_facts": engine.facts(),
            "started_s": started_s,
        }
        done, failure = 0, None
        while unit.cases and self.left_s() > RUN_S and failure is None:
            failure = self._case(spec, unit, engine, unit.cases.pop(0), facts)
            done += 1
        self._close(engine)
        del engine, built
        self.forget()
        took = time.monotonic() - begin
        print(
            f"{shown}: {done} runs in {took:.1f} s (started in {started_s:.1f}), {self.left_s():.0f} s left", flush=True
        )
        return self._fresh(failure)

    def _close(self, engine: Engine | None) -> None:
        try:
            self.stuck |= engine is not None and not engine.close()
        except Exception:  # noqa: BLE001 - whatever went wrong, a fresh process is safe
            self.stuck = True

    def _fresh(self, failure: Exception | None) -> int:
        """RESTART if this process cannot go on. A thread that hangs would also keep the process from ending."""
        if self.stuck:
            sys.stdout.flush()
            os._exit(RESTART)
        broken = failure is not None and self.meter.is_broken_by(failure)
        return RESTART if broken or self._holds_memory() else 0

    def _build(self, case: dict[str, Any]) -> models.Built:
        built = models.Built({**case, "mode": "decode"}, self.meter.device)
        built.model.eval()
        return built

    def _start(self, built: models.Built, unit: Unit) -> Engine:
        """The engine, warmed up, with the first attention that works for the model."""
        case, failure = unit.cases[0], EngineError("no attention is left to try")
        self.refused = {}
        prompts = self._warm_up_prompts(built, unit)
        for attention in ATTENTION:
            if (model_key(case), attention) in self.avoid:
                continue
            engine = None
            try:
                self.forget()
                engine = Engine(built.model, case["engine"], attention)
                engine.warm_up(prompts)
                return engine
            except CaseTimeoutError:
                self._close(engine)
                raise
            except Exception as error:
                if self.meter.is_broken_by(error):
                    self.avoid.add((model_key(case), attention))
                    self.write(
                        {"kind": AVOID, "key": model_key(case), "attention": attention, "reason": str(error)[:300]}
                    )
                    raise
                failure = EngineError(f"{attention}: {type(error).__name__}: {error}")
                self.refused = {"attention_refused": str(failure)[:300]}
                self._close(engine)
                if self.stuck:
                    raise failure from error
        raise failure

    def _warm_up_prompts(self, built: models.Built, unit: Unit) -> list[list[int]]:
        vocab = built.model.config.get_text_config().vocab_size
        longest = max(unit.cases, key=lambda case: int(case["prompt"]))
        traffic = Traffic(longest, vocab)
        lengths = [int(longest["prompt"]), min(int(case["prompt"]) for case in unit.cases)]
        return [traffic.prompt(length) for length in lengths for _ in range(WARM_UP_REQUESTS)]

    def _case(
        self, spec: dict[str, Any], unit: Unit, engine: Engine, case: dict[str, Any], facts: dict[str, Any]
    ) -> Exception | None:
        """Makes one run and writes its row; the error if it failed, after which the engine may be in any state."""
        self.now(KIND, specs.key_of(case), unit.repeat, case, spec["name"])
        row: dict[str, Any] = {"host_probe_before": host_probe.quick_probe(self.meter)}
        traffic = Traffic(case, engine.model.config.get_text_config().vocab_size)
        ramp_s, window_s = float(spec.get("ramp_s", RAMP_S)), float(spec.get("window_s", WINDOW_S))
        begin, failure = time.perf_counter(), None
        gc.collect(0)
        gc.disable()
        try:
            with limit(self.case_s):
                row.update(Run(engine, traffic, self.meter, ramp_s, window_s).measure())
            row.update(status="ok", **{f"memory_{k}": v for k, v in self.meter.memory().items()}, **self.meter.state())
        except Exception as error:  # noqa: BLE001 - a failure is a row
            row["status"], row["reason"] = why(error)
            error.__traceback__ = None
            failure = error
        finally:
            gc.enable()
        row.update(
            facts,
            case_s=time.perf_counter() - begin,
            host_probe_after=None if failure else host_probe.quick_probe(self.meter),
        )
        self._row(spec, unit, case, row)
        rates = f"ttft {row.get('ttft_ms') or 0:.0f} itl {row.get('itl_ms') or 0:.1f} ms, "
        rates += f"{row.get('output_tokens_per_s') or 0:.0f} tokens/s, {row.get('power_w') or 0:.0f} W"
        load = case.get("concurrency") or f"{case.get('rate')}/s"
        print(
            f"  {load} {case['prompt']}+{case['output']}: {row['status']} {rates} {row.get('reason', '')[:150]}",
            flush=True,
        )
        return failure

    def _row(self, spec: dict[str, Any], unit: Unit, case: dict[str, Any], row: dict[str, Any]) -> None:
        about = {"kind": KIND, "key": specs.key_of(case), "repeat": unit.repeat, "spec": spec["name"], "case": case}
        self.write({**about, **row, "load": os.getloadavg()[0]})

    def _others_left(self, case: dict[str, Any]) -> bool:
        """Whether a fresh process could try another attention for the model."""
        return any((model_key(case), attention) not in self.avoid for attention in ATTENTION)

    def _holds_memory(self) -> bool:
        return not self.meter.is_host and (self.meter.allocated_mb() or 0.0) > LEFT_MB


def _without_cudnn_attention() -> None:
    """Keeps PyTorch from choosing cuDNN's attention, which plans anew for every shape; no two iterations have one."""
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)
