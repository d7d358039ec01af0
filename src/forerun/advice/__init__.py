"""Advice on a prediction: whether it fits, on which MIG slice, at what price, with how much carbon."""
