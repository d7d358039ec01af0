"""Manage the store of measurements: shipped, your own, imported."""
