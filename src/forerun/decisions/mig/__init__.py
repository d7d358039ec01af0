"""How workloads share the slices of MIG-capable GPUs."""
