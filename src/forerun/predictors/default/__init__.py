"""The default predictor: `predictor.py` predicts, `network.py` is the law it learns, `fit.py` fits it."""

from forerun.predictors.default.predictor import DefaultPredictor

__all__ = ["DefaultPredictor"]
