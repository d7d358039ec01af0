"""PyTorch: modules, torch.export programs, TorchScript files, a class in a Python file."""
