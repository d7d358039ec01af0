"""What a model runs on: devices, slices of them, what they cost by the hour, and how clean their electricity is."""

from forerun.device.device import Device
from forerun.device.generations import Generation
from forerun.device.loading import aliases, all_devices, device_ids, load_device

__all__ = ["Device", "Generation", "aliases", "all_devices", "device_ids", "load_device"]
