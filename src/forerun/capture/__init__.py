"""PyTorch run once on meta tensors and recorded as a graph."""
