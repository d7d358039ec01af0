"""Helpers for all packages: limits, documents, processes, numbers as text and text as numbers."""
