"""trappm: graph networks for training steps that first learn from graphs without any measurement.

After K. Panner Selvam and M. Brorsson, "Can Semi-Supervised Learning Improve Prediction of Deep Learning Model Resource
Consumption?" (2024), rebuilt from its description.
"""

from forerun.predictors.published.trappm.predictor import TrappmPredictor

__all__ = ["TrappmPredictor"]
