"""Common parts of predictors with graph neural networks: graphs as arrays, their features, networks, training.

Nothing here needs more than NumPy, PyTorch and torch_geometric once a graph is an array (`arrays.py`), so that networks
can be trained on a machine that has no more than these.
"""
