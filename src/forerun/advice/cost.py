"""The cost of a call: the hourly price of the accelerator, times the time of the call."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.device import Device, load_device
from forerun.device.cloud import Instance, by_the_core, instances_for, load_instance
from forerun.errors import ForerunError
from forerun.prediction import Estimate

MS_PER_HOUR = 3.6e6


def choose_instance(device: Device, instance: str | None) -> Instance | None:
    """The instance named, or the cheapest per accelerator with this device; None when no price is known."""
    if instance is None:
        instances = instances_for(device) if "/" not in device.id and device.provenance else []
        return instances[0] if instances else by_the_core(device)
    chosen = load_instance(instance)
    if chosen.device_id != device.id:
        raise ForerunError(f"{chosen.id} carries {chosen.device_id}, not {device.id}")
    return chosen


def choose_instances(devices: Sequence[Device], instance: str | None) -> list[Instance | None]:
    """One for each device: the instance named where it has the device, else the cheapest."""
    named = load_instance(instance) if instance else None
    if named is not None and named.device_id not in {d.id for d in devices}:
        raise ForerunError(f"{named.id} has {named.device_id}, which is not among the devices")
    return [named if named is not None and named.device_id == d.id else choose_instance(d, None) for d in devices]


def usd_per_ms(usd_per_hour: float) -> float:
    """The price of a millisecond from the hourly price."""
    return usd_per_hour / MS_PER_HOUR


def cost_usd(latency_ms: Estimate, instance: Instance) -> Estimate:
    """US dollars per call on one accelerator of the instance."""
    return latency_ms.scaled(usd_per_ms(instance.usd_per_device_hour), "USD")


def price_line(instance: Instance) -> str:
    """The price as a remark beside the estimate: cloud, instance, rate and date."""
    whose = "" if load_device(instance.device_id).traits.is_host else "accelerator "
    hourly = f"{instance.usd_per_device_hour:.2f} USD per {whose}hour"
    retired = "" if instance.retired is None else f"; no longer offered since {instance.retired}"
    if instance.priced_by is not None:
        each = f"{instance.usd_per_device_hour:.2f} USD per hour"
        return (
            f"{each}, as many cores of {instance.priced_by} cost in {instance.cloud} {instance.id} on {instance.date}"
        )
    return f"{instance.cloud} {instance.id}, {hourly} on {instance.date}{retired}"
