"""A Paddle inference model to ONNX: `python paddle_to_onnx.py MODEL PARAMS OUT.onnx`."""

from __future__ import annotations

import sys
from pathlib import Path

OPSET = 17


def main(model: Path, params: Path, target: Path) -> None:
    import paddle2onnx

    # No optimizer: BatchNormalization stays a node of its own, as the model runs it.
    paddle2onnx.export(
        str(model), str(params), str(target), opset_version=OPSET, enable_onnx_checker=False, enable_optimize=False,
        optimize_tool=None,
    )  # fmt: skip
    if not target.is_file() or not target.stat().st_size:
        raise ValueError("paddle2onnx wrote nothing")


if __name__ == "__main__":
    try:
        main(*(Path(argument) for argument in sys.argv[1:4]))
    except Exception as error:  # noqa: BLE001 - whatever the converter raises, the caller gets one sentence
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        print(f"FORERUN-ERROR {lines[0] if lines else type(error).__name__}", file=sys.stderr)
        sys.exit(1)
