"""gnn-llm: a graph network pre-trained without labels, joined with a language model that answers with a number as text.

Three stages: a graph masked auto-encoder (after Hou et al., "GraphMAE", KDD 2022), graph to text through projected
graph vectors and LoRA, and performance as text for a named device and runtime.
"""

from forerun.predictors.published.gnn_llm.predictor import GnnLlmPredictor

__all__ = ["GnnLlmPredictor"]
