"""What a call costs: the price of an hour of the accelerator, times the time the call takes."""

from __future__ import annotations

from forerun.device import Device
from forerun.device.cloud import Instance, instances_for, load_instance
from forerun.errors import ForerunError
from forerun.prediction import Estimate

_MS_PER_HOUR = 3.6e6


def choose_instance(device: Device, instance: str | None) -> Instance | None:
    """The instance named, or the cheapest per accelerator with this device; None when no price is known."""
    if instance is None:
        found = instances_for(device) if "/" not in device.id and device.provenance else []
        return found[0] if found else None
    chosen = load_instance(instance)
    if chosen.device_id != device.id:
        raise ForerunError(f"{chosen.id} carries {chosen.device_id}, not {device.id}")
    return chosen


def usd_per_ms(instance: Instance) -> float:
    """The price of a millisecond of one accelerator of the instance."""
    return instance.usd_per_device_hour / _MS_PER_HOUR


def cost_usd(latency_ms: Estimate, instance: Instance) -> Estimate:
    """US dollars per call on one accelerator of the instance."""
    return latency_ms.scaled(usd_per_ms(instance), "USD")


def price_line(instance: Instance) -> str:
    """The price as a remark beside the estimate: cloud, instance, rate and date."""
    hourly = f"{instance.usd_per_device_hour:.2f} USD per accelerator hour"
    return f"{instance.cloud} {instance.id}, {hourly} on {instance.date}"
