"""Predictors: they turn a graph's profile and a device's specs into times and energy."""
