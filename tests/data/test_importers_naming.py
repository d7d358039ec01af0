"""Names of devices, dtypes and families in published data sets."""

from __future__ import annotations

import pandas as pd
import pytest

from forerun.data.importers import _naming
from forerun.data.importers._naming import (
    bare,
    device_id,
    device_ids,
    dtype,
    known,
    slug,
    vision_families,
)
from forerun.device import aliases
from forerun.device import device_ids as catalogue


@pytest.mark.parametrize("name", sorted(_naming.DEVICES))
def test_every_entry_leads_to_the_catalogue(name):
    assert _naming.DEVICES[name] in catalogue()


@pytest.mark.parametrize("name", sorted(_naming.UNLISTED))
def test_what_the_catalogue_lacks_has_a_list_of_its_own(name):
    result = _naming.UNLISTED[name]
    assert not known(result) and slug(result) == result and device_id(name) == result


@pytest.mark.parametrize("name", sorted(_naming.DEVICES | _naming.UNLISTED))
def test_every_entry_is_written_as_names_are_compared(name):
    assert bare(name) == name  # another spelling would never be found


def test_no_two_devices_of_the_catalogue_share_a_name():
    meant: dict[str, set[str]] = {}
    for name, result in (aliases() | {i: i for i in catalogue()}).items():
        meant.setdefault(bare(name), set()).add(result)
    assert {name: result for name, result in meant.items() if len(result) > 1} == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("4090", "rtx4090"),  # of the table
        ("GeForce_RTX_3090", "rtx3090"),  # of the catalogue, whatever stands between the words
        ("A100_SXM4_40GB", "a100-sxm4-40gb"),
        ("TITAN Xp", "titan-xp"),
        ("AMD_Radeon_RX_7900_XTX", "rx7900xtx"),
    ],
)
def test_devices_of_the_catalogue(name, meant):
    assert device_id(name) == meant and known(meant)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("GeForce_RTX_2060_MaxQ", "geforce-rtx-2060-maxq"),
        (" i9_10940x ", "i9-10940x"),
        ("RTX 3090 (x2)", "rtx-3090-x2"),
    ],
)
def test_other_devices_get_a_slug_and_never_a_relative(name, plain):
    assert device_id(name) == plain and not known(plain)


def test_a_data_set_can_mean_its_own_by_a_name():
    assert device_id("v100", {"v100": "v100-pcie-32gb"}) == "v100-pcie-32gb"
    assert device_id("titanx", {"titanx": "titan x pascal"}) == "titan-x-pascal"
    assert device_id("v100", {"p100": "p100-pcie-16gb"}) == device_id("v100")


def test_the_table_goes_before_the_catalogue(monkeypatch):
    monkeypatch.setitem(_naming.DEVICES, "v100", "v100-32gb")
    assert aliases()["v100"] == "v100-16gb" and device_id("V100") == "v100-32gb"


def test_columns_keep_their_nulls():
    result = device_ids(pd.Series(["2080ti", None, "Pixel 2"]), {"Pixel 2": "pixel 2"})
    assert result[0] == "rtx2080ti" and result[2] == "pixel-2" and pd.isna(result[1])


def test_dtypes():
    names = ["half", "FLOAT32", "double", "bfloat16", "fp8", "int4"]
    assert [dtype(name) for name in names] == ["fp16", "fp32", "fp64", "bf16", "fp8", "int4"]


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet50", "resnet"),
        ("resnetv2_50x1_bit", "resnetv2"),
        ("tf_efficientnet_b0.ns_jft_in1k", "efficientnet"),
        ("ens_adv_inception_resnet_v2", "inception"),
        ("res2net50_26w_4s", "res2net"),
        ("cs3darknet_l", "cs3darknet"),
        ("mobilenet_v2", "mobilenetv2"),
        ("mobilenetv3_small_050", "mobilenetv3"),
        ("vit_base_patch16_224", "vit"),
        ("vgg16_bn", "vgg"),
        ("wide_resnet50_2", "resnet"),
        ("shufflenet_v2_x0_5", "shufflenetv2"),
    ],
)
def test_families(name, family):
    assert vision_families(pd.Series([name]))[0] == family
