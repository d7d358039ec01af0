"""XGBoost on numbers of model and device."""

from forerun.predictors.published.trees.predictor import GRID, TreesPredictor

__all__ = ["GRID", "TreesPredictor"]
