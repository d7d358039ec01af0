"""Links between devices: what the catalogue says, which of them a group must use, and what is refused."""

from __future__ import annotations

import pytest
import yaml

from forerun.device import all_devices, load_device
from forerun.device.cloud import all_instances, load_instance
from forerun.device.links import FABRIC, NETWORK, PCIE, in_machine, link, links
from forerun.device.reading import CATALOG
from forerun.errors import ForerunError


def test_the_catalogue_names_devices_and_instances_that_exist() -> None:
    content = yaml.safe_load((CATALOG / "links.yaml").read_text())
    known = {device.id for device in all_devices()}
    assert {
        *content["machine"],
        *content["bridged"]["devices"],
        *content["links"],
        *content["mesh"]["devices"],
    } <= known
    assert set(content["instances"]) <= {instance.id for instance in all_instances()}
    assert set(content["networks"]) <= known | {device.architecture for device in all_devices()}
    for device in all_devices():
        rates = [one.gbs for one in links(device)]
        assert rates == sorted(rates, reverse=True) and all(one.source for one in links(device)), device.id


@pytest.mark.parametrize(
    ("device", "count", "kind", "gbs"),
    [
        ("h100-sxm", 8, FABRIC, 450), ("h100-sxm", 16, NETWORK, 50), ("a100-sxm4-80gb", 2, FABRIC, 300),
        ("gb200", 72, FABRIC, 900), ("gb200", 144, NETWORK, 50), ("t4", 4, PCIE, 16),
        ("h100-pcie", 2, FABRIC, 300), ("h100-pcie", 4, PCIE, 64), ("mi300x", 8, FABRIC, 448),
        ("b300", 16, NETWORK, 100), ("b200", 16, NETWORK, 50), ("gaudi3", 8, FABRIC, 525),
        ("tpu-v5e", 256, FABRIC, 200),
    ],
)  # fmt: skip
def test_a_group_uses_the_slowest_link_that_it_needs(device: str, count: int, kind: str, gbs: float) -> None:
    slowest = link(load_device(device), count)
    assert (slowest.kind, slowest.gbs) == (kind, gbs)


def test_few_devices_of_a_mesh_use_few_of_its_links() -> None:
    for name in ("mi300x", "v100-16gb"):
        mesh = link(load_device(name), 8)
        assert mesh.rate_gbs(8) == mesh.gbs and mesh.rate_gbs(2) == pytest.approx(mesh.gbs / 7)
    switch = link(load_device("h200"), 8)
    assert switch.rate_gbs(2) == switch.gbs


def test_a_cloud_instance_has_its_own_network() -> None:
    device = load_device("a100-sxm4-40gb")
    vendor, cloud = link(device, 16), link(device, 16, load_instance("p4d.24xlarge"))
    assert vendor.assumed and vendor.gbs == 25
    assert not cloud.assumed and cloud.gbs == 6.25 and in_machine(device) == 8
    sixteen = load_instance("a2-megagpu-16g")
    assert link(device, 16, sixteen).kind == FABRIC and in_machine(device, sixteen) == 16
    with pytest.raises(ForerunError, match=r"^p4d.24xlarge has a100-sxm4-40gb, not h100-sxm$"):
        link(load_device("h100-sxm"), 16, load_instance("p4d.24xlarge"))


@pytest.mark.parametrize("name", ["jetson-agx-orin-64gb", "a100-sxm4-40gb/3g.20gb", "xeon-emr-2vcpu"])
def test_boards_and_slices_are_joined_by_nothing(name: str) -> None:
    assert links(load_device(name)) == ()
    with pytest.raises(ForerunError, match="a device file states it as interconnect_gbs or pcie_gbs"):
        link(load_device(name), 2)


def test_what_cannot_be_joined_is_one_sentence() -> None:
    with pytest.raises(
        ForerunError, match=r"^16 of t4 need a network between machines, and none is known for it; PCIe"
    ):
        link(load_device("t4"), 16)
