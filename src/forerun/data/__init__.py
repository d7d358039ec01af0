"""Measurements, ours and other people's, in one store."""
