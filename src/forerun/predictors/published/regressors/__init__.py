"""The usual regressors of machine learning on numbers of model and device, in one predictor."""

from forerun.predictors.published.regressors.predictor import RegressorsPredictor

__all__ = ["RegressorsPredictor"]
