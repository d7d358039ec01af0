"""Decisions based on predictions: which device, what to change, what fits a budget, how to share a GPU."""
