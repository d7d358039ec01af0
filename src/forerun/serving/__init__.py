"""Serving engines: requests, a simulator of an engine's iterations, its steady state, and what a client sees."""
