"""Prices and grids: enough of them, consistent, dated, and found by exact names."""

from __future__ import annotations

from datetime import date

import pytest

from forerun.advice.cost import price_line
from forerun.device import load_device
from forerun.device.carbon import Grid, carbon_g, grid_ids, load_grid
from forerun.device.cloud import CLOUDS, all_instances, instances_for, load_instance, retired_instances
from forerun.errors import ForerunError

# --- prices --------------------------------------------------------------------------------------------------------


def test_there_are_enough_prices_and_each_is_sound() -> None:
    instances = all_instances()
    assert len({i.id for i in instances}) == len(instances) >= 160
    assert {i.cloud for i in instances} == set(CLOUDS)
    for instance in instances:
        device = load_device(instance.device_id)
        assert device.id == instance.device_id
        if device.traits.is_host:  # a core is one vCPU on Arm, two elsewhere
            vcpus = instance.device_count * (device.sm_count or 0) * (1 if device.vendor == "AWS" else 2)
            assert instance.vcpus == vcpus, instance.id
        assert instance.device_count >= 1
        assert 0.01 < instance.usd_per_device_hour < 25, instance.id
        assert instance.region
        assert instance.source
        assert date.fromisoformat(instance.date) > date(2025, 1, 1)


def test_an_instance_by_name() -> None:
    instance = load_instance("p4d.24xlarge")
    assert (instance.cloud, instance.device_id, instance.device_count) == ("aws", "a100-sxm4-40gb", 8)
    assert instance.usd_per_device_hour == pytest.approx(instance.usd_per_hour / 8)
    assert load_instance("AWS/P4D.24xlarge") == instance
    assert load_instance(instance) is instance
    assert load_instance("standard_nc24ads_a100_v4").device_id == "a100-pcie-80gb"


def test_retired_instances_are_not_offered_but_keep_their_price() -> None:
    gone = ("Standard_NC6", "Standard_NC24", "Standard_NC6s_v3", "Standard_NV12s_v3", "p3.2xlarge")
    offered = {i.id for i in all_instances()}
    for name in gone:
        instance = load_instance(name)
        assert name not in offered and instance.id not in {i.id for i in instances_for(instance.device_id)}
        assert instance.retired and date.fromisoformat(instance.retired[:10]) > date.fromisoformat("2023-01-01")
        assert "no longer offered since 20" in price_line(instance) and "(" in price_line(instance)
    p3 = {i.id: i for i in retired_instances("v100-16gb") if i.cloud == "aws"}
    assert {name: (i.device_count, i.usd_per_hour) for name, i in p3.items()} == {
        "p3.2xlarge": (1, 3.06), "p3.8xlarge": (4, 12.24), "p3.16xlarge": (8, 24.48),
    }  # fmt: skip
    assert not instances_for("k80")  # nobody lists another price of it
    assert all(i.retired is None for i in all_instances())
    assert "no longer offered" not in price_line(load_instance("p4d.24xlarge"))


def test_an_instance_that_is_not_there() -> None:
    with pytest.raises(ForerunError, match=r"unknown cloud instance 'p4d.24xlarg'\. Did you mean p4d.24xlarge"):
        load_instance("p4d.24xlarg")
    with pytest.raises(ForerunError):
        load_instance("gcp/p4d.24xlarge")
    with pytest.raises(ForerunError):
        load_instance("24xlarge")


def test_instances_of_a_device_come_cheapest_first() -> None:
    result = instances_for("NVIDIA H100 80GB HBM3")
    prices = [i.usd_per_device_hour for i in result]
    assert len({i.cloud for i in result}) >= 4
    assert prices == sorted(prices)
    assert {i.device_id for i in result} == {"h100-sxm"}
    assert {i.cloud for i in instances_for("h100", cloud="aws")} == {"aws"}


def test_a_device_that_no_cloud_rents() -> None:
    assert instances_for("apple-m1") == []
    assert instances_for("h200", cloud="azure") == []
    with pytest.raises(ForerunError, match="unknown cloud 'amazon'"):
        instances_for("h100", cloud="amazon")


def test_a_tpu_slice_counts_chips() -> None:
    assert load_instance("tpu-v4-8").device_count == 4  # the name counts TensorCores, two per chip
    assert load_instance("tpu-v5litepod-8").device_count == 8
    assert load_instance("tpu-v6e-1").device_count == 1


# --- grids ---------------------------------------------------------------------------------------------------------


def test_there_are_enough_grids_and_each_is_sound() -> None:
    grids = [load_grid(name) for name in grid_ids()]
    countries = [g for g in grids if "/" not in g.id]
    assert len(countries) >= 100
    assert all((len(g.id) == 3 and g.id.isupper()) or g.id == "WORLD" for g in countries)
    for cloud in ("aws", "gcp", "azure"):
        assert len([g for g in grids if g.id.startswith(f"{cloud}/")]) >= 25
    for grid in grids:
        assert 1 < grid.g_per_kwh < 1100, grid.id
        assert all((grid.source, grid.year, grid.pue_source, grid.name)), grid.id
        assert (grid.pue is None) == ("/" not in grid.id)
        assert grid.pue is None or 1.0 < grid.pue < 1.5
    for grid in countries:
        assert 2015 <= int(grid.year) <= 2026, grid.id


@pytest.mark.parametrize(
    ("name", "grid_id"),
    [
        ("us", "USA"), ("USA", "USA"), ("United States", "USA"), ("uk", "GBR"), ("gb", "GBR"), ("de", "DEU"),
        ("germany", "DEU"), ("NO", "NOR"), ("south_korea", "KOR"), ("aws/us-east-1", "aws/us-east-1"),
        ("us-east-1", "aws/us-east-1"), ("us-east1", "gcp/us-east1"), ("gcp/europe-west4", "gcp/europe-west4"),
        ("azure/westeurope", "azure/westeurope"), ("EastUS", "azure/eastus"), ("Türkiye", "TUR"),
    ],
)  # fmt: skip
def test_a_grid_by_any_of_its_names(name: str, grid_id: str) -> None:
    assert load_grid(name).id == grid_id


def test_a_region_without_its_own_value_takes_its_country() -> None:
    region, country = load_grid("aws/eu-west-1"), load_grid("Ireland")
    assert region.g_per_kwh == country.g_per_kwh
    assert "the whole of Ireland" in region.source
    assert load_grid("gcp/us-west1").g_per_kwh != load_grid("USA").g_per_kwh


def test_a_grid_that_is_not_there() -> None:
    with pytest.raises(ForerunError, match=r"unknown region 'us-east-9'\. Did you mean .*us-east-1"):
        load_grid("us-east-9")
    for name in ("aws", "us-", "east", "gcp/us-east-1", ""):
        with pytest.raises(ForerunError):
            load_grid(name)


def test_carbon_of_an_energy() -> None:
    kwh = 3.6e6
    assert carbon_g(kwh, "USA") == pytest.approx(load_grid("USA").g_per_kwh)  # no PUE: the accelerator alone
    region = load_grid("us-east-1")
    assert region.pue is not None
    assert carbon_g(kwh, region) == pytest.approx(region.g_per_kwh * region.pue)
    own = Grid("roof", "My roof", 40.0, "2026", "a meter", None, "at home")
    assert carbon_g(2 * kwh, own) == pytest.approx(80.0)
    assert carbon_g(0, "fr") == 0
    with pytest.raises(ForerunError):
        carbon_g(-1, "fr")
