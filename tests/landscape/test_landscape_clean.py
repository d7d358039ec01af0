"""Cleaning Epoch AI's tables: forty rows written by hand, and files that are damaged."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from landscape_rows import hardware_rows, model_rows, write, write_tables

from forerun.errors import ForerunError
from forerun.landscape import amounts, kept, names
from forerun.landscape.clean import read_tables
from forerun.landscape.schema import Tables, exploded


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables of the new and the old copy."""
    return read_tables(write_tables(tmp_path_factory.mktemp("epoch"), old=True))


def row(tables: Tables, model: str) -> pd.Series:
    """The one row of a model."""
    (at,) = tables.models.index[tables.models["model"] == model]
    return tables.models.loc[at]


def test_one_row_per_model(tables: Tables) -> None:
    assert len(tables.models) == 41  # forty and the one that only the old copy has
    assert tables.models["model"].is_unique and len(tables.hardware) == 9
    assert tables.copies[0] == "notable_ai_models_2026-07"


def test_newest_copy_wins_and_older_ones_fill(tables: Tables) -> None:
    dogwood = row(tables, "Dogwood-0.2B")
    assert dogwood["parameters"] == 2e8
    assert dogwood["training_hours"] == 168
    assert row(tables, "Elm-11B")["mfu"] == 0.3


def test_a_renamed_model_is_one(tables: Tables) -> None:
    assert "Oak" not in set(tables.models["model"])
    joined = next(step for step in tables.steps if step.name == "renamed models joined")
    assert (joined.rows_before, joined.rows_after) == (42, 41)


def test_every_step_counts_rows(tables: Tables) -> None:
    assert [step.name for step in tables.steps][-1] == "hardware names resolved"
    joined = next(step for step in tables.steps if step.name.startswith("copies joined"))
    assert (joined.rows_before, joined.rows_after) == (44, 42)
    assert all(step.rows_after <= step.rows_before and step.words for step in tables.steps)


def test_names_are_unified(tables: Tables) -> None:
    assert row(tables, "Cedar-18B")["countries"] == ("South Korea",)
    assert row(tables, "Hazel-160B")["organisations"] == ("Meta AI",)
    assert row(tables, "Willow")["organisations"] == ("Google DeepMind",)
    assert names.organisation("Zhejiang University (ZJU)") == "Zhejiang University"
    assert names.organisation("Northeastern University (China)") == "Northeastern University (China)"


def test_hardware_is_resolved_to_our_devices(tables: Tables) -> None:
    assert row(tables, "Teak-99B")["devices"] == ("h100-sxm", "a100-sxm4-40gb")
    assert row(tables, "Teak-0.37B")["devices"] == (None,)
    assert tables.hardware_resolved == pytest.approx(40 / 41)
    chips = tables.hardware.set_index("hardware")["device"]
    assert chips["NVIDIA GB200"] == "gb200" and chips["Sapling S1"] is None


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA B300 (Blackwell Ultra)", "b300"), ("NVIDIA B200 GPUs", "b200"), ("Nvidia H100 80G", "h100-sxm"),
        ("Ascend (昇腾) 910B", "ascend-910b"), ("Amazon Trainium2", "trainium2"),
        ("NVIDIA A800 PCIe", "a800-pcie-80gb"), ("NVIDIA Tesla V100 DGXS 32 GB", "v100-32gb"), ("Google TPU v1", None),
        ("NVIDIA H1000", None), ("", None),
    ],
)  # fmt: skip
def test_a_hardware_name(name: str, device: str | None) -> None:
    assert names.device_of(name) == device


def test_rows_multiplied_the_published_way(tables: Tables) -> None:
    rows = exploded(tables.models)
    teak = rows[rows["model"] == "Teak-99B"]
    assert len(teak) == 2 * 2 * 2  # organisations, countries, chips
    assert set(zip(teak["chip"], teak["device"], strict=True)) == {
        ("NVIDIA H100 SXM5 80GB", "h100-sxm"), ("NVIDIA A100", "a100-sxm4-40gb"),
    }  # fmt: skip
    assert len(rows[rows["model"] == "Hazel-23B"]) == 3  # domains


def test_what_is_unknown_is_not_zero(tables: Tables) -> None:
    assert pd.isna(row(tables, "Fir-0.11B")["training_hours"])
    assert row(tables, "Fir-0.11B")["base_model"] is None
    assert not (tables.models.select_dtypes("number") == 0).any().any()


def test_tables_are_kept(tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path / "store"))
    with pytest.raises(ForerunError, match="forerun landscape import"):
        kept.load_tables()
    for _ in range(2):  # a second import takes the place of the first
        kept.keep_tables(tables)
    loaded = kept.load_tables()
    pd.testing.assert_frame_equal(loaded.models, tables.models)
    pd.testing.assert_frame_equal(loaded.hardware, tables.hardware)
    assert loaded.steps == tables.steps and loaded.hardware_resolved == tables.hardware_resolved
    assert list(loaded.models.loc[loaded.models["frontier"], "model"]) == ["Ginkgo-120B"]
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["landscape"]
    (kept.folder() / "models.parquet").write_bytes(b"PAR1")
    with pytest.raises(ForerunError, match="import them again"):
        kept.load_tables()


def test_an_import_that_fails_leaves_the_tables(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORERUN_STORE", str(tmp_path))
    kept.keep_tables(tables)
    rename = Path.rename

    def fails(path: Path, target: Path) -> Path:
        if path.suffix == ".part":
            raise OSError("disk full")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(ForerunError, match="cannot be written"):
        kept.keep_tables(tables)
    assert len(kept.load_tables().models) == len(tables.models)


def changed(column: str, value: str) -> Callable[[list[dict[str, str]]], list[dict[str, str]]]:
    """Rows with one cell changed."""
    return lambda rows: [{**rows[0], column: value}, *rows[1:]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (changed("Parameters", "-1"), r"'Parameters' of 'Alder-2B' must be larger than 0, got '-1'"),
        (changed("Parameters", "many"), r"is a number such as 70B, .* got 'many'"),
        (changed("Publication date", "last May"), r"is a date such as 2024-07-23"),
        (changed("Hardware utilization (MFU)", "27"), r"is a share between 0 and 1"),
        (
            lambda rows: [{("Params" if k == "Parameters" else k): v for k, v in one.items()} for one in rows],
            r"has no column 'Parameters', which its table must have\. Did you mean Params\?",
        ),
        (lambda rows: [{k: v for k, v in one.items() if k != "Model"} for one in rows], r"neither a column 'Model'"),
    ],
)
def test_bad_cells_and_columns(
    change: Callable[[list[dict[str, str]]], list[dict[str, str]]], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ForerunError, match=sentence) as error:
        read_tables(write(tmp_path / "notable_ai_models.csv", change(model_rows())))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cut", [0.5, 0.9])
def test_a_truncated_file(cut: float, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.csv", model_rows()).read_text()
    part = tmp_path / "notable_ai_models.csv"
    part.write_text(whole[: int(len(whole) * cut)])
    with pytest.raises(ForerunError, match=r"notable_ai_models\.csv is cut off or damaged"):
        read_tables(part)


def test_an_open_quote_a_wrong_encoding_nothing(tmp_path: Path) -> None:
    path = tmp_path / "models.csv"
    path.write_text('Model,Publication date\n"Alder,2020-01-01\n')
    with pytest.raises(ForerunError, match="cut off or damaged after row 0"):
        read_tables(path)
    path.write_bytes(b"Model,Publication date\n\xff\xfe,1\n")
    with pytest.raises(ForerunError, match="not a CSV in UTF-8"):
        read_tables(path)
    path.write_text("Model,Publication date\n")
    with pytest.raises(ForerunError, match="has no rows"):
        read_tables(path)
    with pytest.raises(ForerunError, match="neither a CSV nor a folder"):
        read_tables(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ForerunError, match="no CSV in"):
        read_tables(tmp_path / "empty")


def test_hardware_alone_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(ForerunError, match="none of the CSVs holds models"):
        read_tables(write(tmp_path / "ml_hardware.csv", hardware_rows()))


def test_models_alone_and_columns_nobody_knows(tmp_path: Path) -> None:
    rows = [{**one, "Mood": "good"} for one in model_rows()]
    tables = read_tables([write(tmp_path / "models.csv", rows)])
    assert len(tables.models) == 40 and tables.hardware.empty
    assert "not used: Mood" in tables.steps[0].words


def test_other_files_of_a_folder_are_left(tmp_path: Path) -> None:
    write_tables(tmp_path)
    with (tmp_path / "clusters.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["Name", "Power"], ["Site", "3"]])
    assert len(read_tables(tmp_path).models) == 40


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("70B", 70e9), ("1.5 billion", 1.5e9), ("15T", 15e12), ("3.1e23", 3.1e23), ("2.1 x 10^24", 2.1e24),
        ("10^25", 1e25), ("1,280,000", 1.28e6), ("~ 8 million", 8e6),
    ],
)  # fmt: skip
def test_numbers_in_words(text: str, value: float) -> None:
    assert amounts.count(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "-1", "0", "1e400", "12 apples", "nan", "1e", "B"])
def test_no_numbers(text: str) -> None:
    with pytest.raises(ForerunError):
        amounts.count(text)


def test_several_numbers_in_a_cell_are_added() -> None:
    assert amounts.total("2260275840,2290000001") == 4550275841
    assert amounts.total("1,280,000") == 1280000
