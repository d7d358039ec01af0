"""SQL of users: values as they are, limits that are reported, and conditions that can do no more than choose rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forerun.cli import run
from forerun.data import sql
from forerun.data.export import write
from forerun.data.store import Store
from forerun.errors import ForerunError
from forerun.training.gather import chosen_models

VALUES = """select ':x: [/a] [bold]' as text, '\\xAA\\x00'::blob as bytes, [1, null] as list, {'a': 1.5} as struct,
map {'k': 'v'} as map, '00000000-0000-0000-0000-000000000007'::uuid as id, date '2026-01-02' as day,
interval 3 day as span, 1.5::decimal(5, 2) as exact, 'nan'::double as nothing, 'inf'::double as endless,
true as yes, null as blank, 170141183460469231731687303715884105727 as big, 1 as twice, 2 as twice,
chr(27) || '[31m' as escape"""


def test_values_are_printed_as_they_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert run(["data", "query", VALUES]) == 0
    out = capsys.readouterr().out
    for shown in (":x: [/a] [bold]", "aa00", "[1, None]", "{'a': 1.5}", "2026-01-02", "\\x1b[31m", "True"):
        assert shown in out
    assert run(["data", "query", VALUES, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["bytes"] == "aa00" and row["list"] == [1, None] and row["struct"] == {"a": 1.5}
    assert row["id"].endswith("7") and row["exact"] == 1.5 and row["big"] == 2**127 - 1
    assert (row["nothing"], row["endless"], row["blank"], row["yes"]) == (None, None, None, True)
    assert (row["twice"], row["twice_1"]) == (1, 2)


def test_rows_that_were_cut_are_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "query", "select * from range(1000000000000)", "--limit", "3"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4 and "only the first 3 rows are shown" in err
    assert run(["data", "query", "select * from range(3)", "--limit", "3", "--json"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 3 and err == ""


def test_a_query_that_takes_too_long_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "query", "select pg_sleep(100)", "--time-limit", "1"]) == 2
    assert "took longer than 1 s and was stopped" in capsys.readouterr().err


@pytest.mark.parametrize(
    "where",
    [
        "true; copy models to 'owned.csv'",
        "(select count(*) from read_text('/etc/passwd')) > 0",
        "exists (with a as (copy (select 1) to 'owned.csv') select * from a)",
        "pg_sleep(100) is null",
        "no_such_column = 1",
        "",
    ],
)
def test_a_condition_chooses_rows_and_does_nothing_else(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "CONDITION_S", 2.0)
    monkeypatch.chdir(tmp_path)
    for ask in (lambda: chosen_models(Store(), where), lambda: write(Store(), tmp_path / "rows.csv", "models", where)):
        with pytest.raises(ForerunError, match="the query"):
            ask()
    assert not list(tmp_path.iterdir())


def test_a_condition_may_end_in_a_comment() -> None:
    chosen = chosen_models(Store(), "family = 'resnet' -- nothing else")
    assert len(chosen) and set(chosen["family"]) == {"resnet"}
