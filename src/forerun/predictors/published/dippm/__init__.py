"""dippm: a GraphSAGE network over the ops of an image model; latency, memory and energy of its inference.

After K. Panner Selvam and M. Brorsson, "DIPPM: a Deep Learning Inference Performance Predictive Model using Graph
Neural Networks" (Euro-Par 2023), rebuilt from its description.
"""

from forerun.predictors.published.dippm.predictor import DippmPredictor

__all__ = ["DippmPredictor"]
