"""The store of measurements, our own and published ones."""
