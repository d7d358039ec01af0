"""Which device, instance, batch and dtype to choose."""
