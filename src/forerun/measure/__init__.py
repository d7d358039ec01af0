"""Measuring models on this machine: the protocol, the meters and the sweeps."""
