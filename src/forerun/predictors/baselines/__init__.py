"""Baselines: a median, one ratio, the roofline."""
