"""Traces of requests: CSV and JSON lines, and one sentence for a bad row."""

from __future__ import annotations

import pytest

from forerun.errors import ForerunError
from forerun.serving.trace import parse_trace, read_trace

GOOD = "arrival_s,input_tokens,output_tokens\n3.5,100,20\n1.0,50,10\n"


def test_rows_are_sorted_and_begin_at_zero() -> None:
    found = parse_trace(GOOD)
    assert found.arrivals_s.tolist() == [0.0, 2.5] and found.inputs.tolist() == [50, 100]
    assert found.outputs.tolist() == [10, 20] and found.prefixes.tolist() == [-1, -1]


@pytest.mark.parametrize(
    "text",
    ["1.0,50,10\n3.5,100,20", '{"arrival_s": 1.0, "input_tokens": 50, "output_tokens": 10}\n\n'
     '{"arrived_at": 3.5, "num_prefill_tokens": 100, "num_decode_tokens": 20}'],
    ids=["no heading", "json"],
)  # fmt: skip
def test_other_forms_of_the_same(text) -> None:
    found = parse_trace(text)
    assert found.arrivals_s.tolist() == [0.0, 2.5] and found.inputs.tolist() == [50, 100]


def test_prefixes_by_any_name() -> None:
    found = parse_trace(
        "arrival_s,input_tokens,output_tokens,prefix_id,prefix_tokens\n0,50,1,a,30\n1,50,1,b,\n2,50,1,a,20"
    )
    assert found.prefixes.tolist() == [0, 1, 0] and found.prefix_tokens.tolist() == [30, 50, 20]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0,50,10\n-1,50,10", "t.csv, line 2: a request cannot arrive at a negative time, -1 s"),
        (GOOD + "x,1,1", "t.csv, line 4: arrival_s must be a number, got 'x'"),
        ("nan,1,1", "t.csv, line 1: arrival_s must be a number"),
        ("0,0,10", "t.csv, line 1: input_tokens must be a whole number from 1"),
        ("0,5,1.5", "t.csv, line 1: output_tokens must be a whole number from 1"),
        ("0,5", "t.csv, line 1: output_tokens is missing"),
        ("arrival_s,input_tokens\n0,5", "t.csv has no column output_tokens"),
        ("", "t.csv has no requests"),
        ("0,5,5,p,9", "t.csv, line 1: a prefix of 9 tokens is longer than its prompt of 5"),
        ('{"arrival_s": 0', "t.csv, line 1: this is no JSON object"),
        ('{"arrival_s": 1' + "0" * 400 + ', "input_tokens": 1, "output_tokens": 1}', "t.csv, line 1: arrival_s must"),
        ("0,1,1\n" + "1" * 200_000, "t.csv, line 2: "),  # other libraries raise the limit of cells in this process
        ('{"arrival_s": true, "input_tokens": 1, "output_tokens": 1}', "t.csv, line 1: arrival_s must be a number"),
    ],
)
def test_a_bad_row_is_one_sentence_with_its_line(text, sentence) -> None:
    with pytest.raises(ForerunError) as found:
        parse_trace(text, "t.csv")
    assert str(found.value).startswith(sentence) and "\n" not in str(found.value)


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(ForerunError, match="there is no trace"):
        read_trace(tmp_path / "none.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\xff")
    with pytest.raises(ForerunError, match="cannot be read: no UTF-8"):
        read_trace(binary)
    with pytest.raises(ForerunError, match="cannot be read: embedded null"):
        read_trace("a\0b.csv")
    with pytest.raises(ForerunError, match="a trace is a file or requests, got 5"):
        read_trace(5)  # type: ignore[arg-type]
