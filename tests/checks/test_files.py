from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from heedful.checks import files, predictions
from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput

ROWS = [{"y": n, "yhat": n + 0.5} for n in range(20)]


def written(folder: Path, suffix: str) -> Path:
    path = folder / f"results{suffix}"
    if suffix in (".csv", ".tsv"):
        comma = "," if suffix == ".csv" else "\t"
        lines = [comma.join(ROWS[0]), *(comma.join(map(str, row.values())) for row in ROWS)]
        path.write_text("\n".join(lines) + "\n")
    elif suffix == ".json":
        path.write_text(json.dumps(ROWS))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def keys(check, context=Context("a task"), candidate=None):
    return [finding.key for finding in check(candidate, context)]


KINDS = pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])


@KINDS
def test_a_file_that_is_there_passes(tmp_path, suffix):
    path = written(tmp_path, suffix)
    for check in (
        files.results(path),
        files.results(str(path), at_least_rows=20, columns=["yhat", "y"], newer_than=0.0),
        files.results(lambda candidate, state: state / candidate),
    ):
        assert keys(check, Context("a task", data=tmp_path), path.name) == []
        assert check.pure is False


@KINDS
def test_rows_and_columns_that_lack_are_found(tmp_path, suffix):
    path = written(tmp_path, suffix)
    (rows,) = files.results(path, at_least_rows=21)(None, Context("a task"))
    assert rows.key == "missing_results: rows"
    assert "has 20 rows, at least 21 asked for" in rows.message
    (columns,) = files.results(path, columns=["y", "rmse"])(None, Context("a task"))
    assert columns.key == "missing_results: columns"
    assert "lacks rmse; it has y, yhat" in columns.message
    assert columns.fix == "save the columns y, rmse"


@KINDS
@pytest.mark.parametrize("check", [files.results, lambda path: predictions(path, "y", "yhat")])
def test_missing_empty_and_damaged_files_are_missing_results(tmp_path, suffix, check):
    path = tmp_path / f"results{suffix}"
    for content, key in ((None, "missing"), (b"", "empty"), (b'\xff\xfe{"y', "corrupt")):
        if content is not None:
            path.write_bytes(content)
        (finding,) = check(path)(None, Context("a task"))
        assert finding.check == "missing_results"
        assert finding.key == f"missing_results: {key}" or suffix in (".csv", ".tsv")
        assert finding.level == "error"
        assert str(path) in finding.message
        assert finding.fix


def test_the_words_for_a_missing_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (finding,) = files.results("results.csv")(None, Context("a task"))
    assert finding.message == "results file results.csv does not exist"
    assert finding.fix.startswith("make sure that the stage saves its results there, and check the")
    Path("results.csv").mkdir()
    (finding,) = files.results("results.csv")(None, Context("a task"))
    assert finding.message == "results file results.csv is no file"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "y,yhat\n1,2\n1\n"),
        ("a.csv", 'y,yhat\n"1,2\n'),
        ("a.json", '[{"y": 1}, {"y"'),
        ("a.json", "[" * 100_000),
        ("a.jsonl", '{"y": 1, "yhat": 2}\n{"y": \n'),
        ("a.jsonl", '{"y": 1, "yhat": 2}\n[1]\n'),
        ("a.parquet", "PAR1 not at all PAR1"),
    ],
)
def test_a_file_that_breaks_off_is_damaged(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    assert keys(files.results(path)) == ["missing_results: corrupt"]
    assert keys(predictions(path, "y", "yhat")) == ["missing_results: corrupt"]


def test_a_parquet_file_cut_short_is_damaged(tmp_path):
    path = written(tmp_path, ".parquet")
    path.write_bytes(path.read_bytes()[:-20])
    assert keys(files.results(path)) == ["missing_results: corrupt"]


def test_a_file_damaged_in_the_middle_is_damaged(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"y": list(range(100_000))}), path, compression="gzip")
    whole = bytearray(path.read_bytes())
    whole[2_000:60_000] = b"\0" * 58_000
    path.write_bytes(whole)
    assert keys(files.results(path)) == ["missing_results: corrupt"]


@pytest.mark.parametrize("content", ["[]", "{}", "\n\n", "y,yhat\n"])
def test_a_file_without_rows_is_empty(tmp_path, content):
    path = tmp_path / (
        "a.csv" if content[0] == "y" else "a.jsonl" if content == "\n\n" else "a.json"
    )
    path.write_text(content)
    (finding,) = files.results(path)(None, Context("a task"))
    assert finding.check == "missing_results"


def test_an_object_of_metrics_is_one_row(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text('{"model": "ridge", "rmse": 3.25}')
    assert keys(files.results(path, columns=["rmse"])) == []


def test_an_old_file_is_stale(tmp_path):
    path, other = written(tmp_path, ".csv"), written(tmp_path, ".json")
    os.utime(path, (1_000.0, 1_000.0))
    os.utime(other, (2_000.0, 2_000.0))
    (finding,) = files.results(path)(None, Context("a task", began=5_000.0))
    assert finding.key == "missing_results: stale"
    assert "written 1970-01-01 00:16:40.000+00:00, older than its stage" in finding.message
    assert "(1970-01-01 01:23:20.000+00:00)" in finding.message
    assert keys(predictions(path, "y", "yhat"), Context("a task", began=5_000.0))[0] == finding.key
    assert keys(files.results(path, newer_than=other)) == [finding.key]
    assert keys(files.results(other, newer_than=path)) == []
    assert keys(files.results(path, newer_than=1_000.0)) == []
    assert keys(files.results(path, newer_than=1_001.0)) == [finding.key]
    assert keys(files.results(path, newer_than=0.0), Context("a task", began=5_000.0)) == []
    assert keys(files.results(path, newer_than=tmp_path / "input.csv")) == [
        "missing_results: nothing to be newer than"
    ]


def test_a_file_written_now_is_not_stale(tmp_path):
    import time

    began = time.time()
    assert keys(files.results(written(tmp_path, ".csv")), Context("a task", began=began)) == []


@pytest.mark.parametrize("answer", [None, 3, {"a": [1]}])
def test_no_path_is_no_results(answer):
    (finding,) = files.results(lambda output, state: output)(answer, Context("a task"))
    assert finding.key == "missing_results: no path"
    assert finding.message == f"there is no path to a results file, but {answer!r}"


@KINDS
def test_a_name_that_no_file_can_have_is_a_missing_file(suffix):
    name = "x" * 5_000 + suffix
    assert keys(files.results(name)) == ["missing_results: missing"]
    assert keys(files.results(__file__, newer_than=name)) == [
        "missing_results: nothing to be newer than"
    ]
    assert keys(predictions(name)) == ["missing_results: missing"]


@KINDS
def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path, suffix):
    path = written(tmp_path, suffix)
    if suffix != ".parquet":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert keys(files.results(path, len(ROWS), columns=["y", "yhat"])) == []


def test_a_quoted_line_break_is_part_of_its_cell_wherever_a_block_ends(tmp_path):
    path, cell = tmp_path / "r.csv", '"' + "said\n" * 1_000 + '"'
    path.write_text("note,y\n" + f"{cell},1\n" * 500)  # more than two blocks
    assert keys(files.results(path, 500, columns=["note", "y"])) == []
    assert keys(files.results(path, 501)) == ["missing_results: rows"]


def test_the_line_that_is_damaged_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    for line, said in (('{"y": 1', "line 2, column 8: "), ("[1]", "line 2 is no JSON object")):
        path.write_text(f'{{"y": 1}}\n{line}\n')
        (finding,) = files.results(path)(None, Context("a task"))
        assert said in finding.message


def test_of_other_formats_presence_is_looked_at_alone(tmp_path):
    path = tmp_path / "model.bin"
    assert keys(files.results(path)) == ["missing_results: missing"]
    path.write_bytes(b"")
    assert keys(files.results(path)) == ["missing_results: empty"]
    path.write_bytes(b"weights")
    assert keys(files.results(path)) == []
    assert keys(files.results(path, at_least_rows=2)) == ["missing_results: format"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": 5},
        {"path": "a", "at_least_rows": -1},
        {"path": "a", "at_least_rows": True},
        {"path": "a", "newer_than": []},
        {"path": "a", "newer_than": float("inf")},
        {"path": "a", "newer_than": True},
        {"path": "a", "columns": [1]},
        {"path": "a", "columns": [""]},
    ],
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(InvalidInput):
        files.results(**arguments)
