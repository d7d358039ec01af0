"""The measuring core. It needs only torch, timm, transformers, numpy and the standard library, so that it can be
copied to a GPU machine without network.

`python -m forerun.measure.core --spec SPEC --out ROWS.jsonl` writes one JSON object per line.
"""
