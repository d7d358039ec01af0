"""XGBoost on numbers of model and device."""

from forerun.predictors.trees.predictor import GRID, TreesPredictor

__all__ = ["GRID", "TreesPredictor"]
