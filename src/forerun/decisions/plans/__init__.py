"""Plans: how many devices, in which layout, for a service or a training."""
