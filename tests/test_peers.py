"""The run beside the peers: its loop, its contract with their programs, its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import measure, table
from bench.peers.contract import BrokenContract, Line, read_line
from bench.peers.environments import (
    OURS,
    ROOT,
    VERSIONS,
    Environment,
    Peer,
    open_ours,
    read_peers,
)
from bench.peers.loop import (
    LONG_FAULT_CHARS,
    LONG_FAULTS,
    RIGHT_ANSWER,
    Double,
    find_fault,
    find_long_fault,
)
from bench.peers.measure import Measurement

PEER = Peer(name="slow", title="Slow", packages=("slow-loop==2.0",))
SLOW = Environment(peer=PEER, python="python", packages={"slow-loop": "2.0"})
FAST = Environment(peer=OURS, python="python", packages={"heedful": "1.0"})


def measured(peer: str, value: float, round: int = 0, **fields: str) -> Measurement:
    names = {"kind": "cycle", "figure": table.FASTEST, **fields}
    return Measurement(peer=peer, value=value, round=round, **names)


def test_the_double_fails_as_often_as_it_is_to_and_then_is_right():
    double = Double(failures=2)
    faults = [bool(find_fault(double.ask(["task"]))) for _ in range(6)]
    assert faults == [True, True, False, True, True, False]


def test_wrong_answers_of_a_loop_differ():
    double = Double(failures=LONG_FAULTS)
    answers = {double.ask([]) for _ in range(LONG_FAULTS)}
    assert len(answers) == LONG_FAULTS


def test_the_double_counts_bytes_not_characters():
    double = Double()
    double.ask(["é", "abc"])
    double.count(["é"])
    report = {line.figure: line.value for line in double.report()}
    assert report == {"sent_bytes": 7, "sent_largest_bytes": 5, "sent_requests": 2}


def test_a_long_fault_has_its_length_and_a_right_answer_none():
    assert len(find_long_fault("one two three")) == LONG_FAULT_CHARS
    assert find_long_fault(RIGHT_ANSWER) == ""


def test_a_line_is_read_as_it_was_printed():
    line = Line(figure="refused", value=1, text='a "word"')
    assert read_line(line.as_json()) == line


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("warming up", id="not JSON"),
        pytest.param("[1]", id="not an object"),
        pytest.param('{"figure": "x", "text": ""}', id="no value"),
        pytest.param('{"figure": "x", "value": "much", "text": ""}', id="no number"),
    ],
)
def test_a_line_that_is_none_of_the_contract_is_refused(text):
    with pytest.raises(BrokenContract):
        read_line(text)


def test_every_peer_is_pinned_and_has_a_program():
    for peer in read_peers(VERSIONS.read_text("utf-8")):
        assert (ROOT / "bench" / "peers" / f"{peer.name}.py").exists()
        assert all("==" in package for package in peer.packages)
        assert set(peer.kinds) <= set(OURS.kinds)


def test_the_version_of_a_peer_is_that_of_its_first_package():
    assert SLOW.version == "2.0"
    assert Environment(peer=PEER, reason="no wheel").version == ""


def test_a_ratio_that_is_too_small_misses_its_target():
    results = table.Results([measured("ours", 1.0), measured("langgraph", 14.0)])
    figures = list(
        table.figures(results, {"ours": "heedful", "langgraph": "LangGraph"})
    )
    assert [figure.reached for figure in figures] == [None, None, False]


def test_the_table_has_a_column_for_each_peer_that_is_installed():
    results = table.Results(
        [
            measured("ours", 0.1),
            measured("slow", 1.25),
            measured("slow", 3.0, kind="sighting", figure="acknowledged"),
            measured("slow", 2.0, 1, kind="sighting", figure="acknowledged"),
            Measurement(
                peer="slow", kind="durable", round=0, figure="failed", text="OSError: x"
            ),
        ]
    )
    absent = Environment(
        peer=Peer(name="absent", title="Absent", packages=("absent==1",)),
        reason="no wheel",
    )
    lines = table.write_section(results, [FAST, SLOW, absent], "A quiet day.").split(
        "\n"
    )

    assert "|  | heedful | Slow |" in lines
    assert "| version | 1.0 | 2.0 |" in lines
    assert "| cycle in process ¹, ms | 0.1 | 1.25 (12.5 ×) |" in lines
    assert "| durable cycle, ms | – | failed |" in lines
    assert "- Absent could not be installed: no wheel." in lines
    assert "- Slow, durable: failed with `OSError: x`." in lines
    (least,) = [line for line in lines if "acknowledged |" in line]
    assert least.endswith("| – | 2 |")


def test_a_section_replaces_the_one_before():
    page = f"# Title\n\n{table.BEGIN}\n\nold\n\n{table.END}\n\nrest\n"
    new = f"# Title\n\n{table.BEGIN}\n\nnew\n\n{table.END}\n\nrest\n"
    assert table.replace_section(page, "new") == new


def test_a_page_without_marks_is_not_written():
    with pytest.raises(ValueError, match="no marks"):
        table.replace_section("# Title\n", "new")


def test_the_page_has_the_marks():
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert table.replace_section(page, "new") != page


def test_our_own_program_keeps_the_contract(tmp_path: Path):
    measurements = measure.measure(open_ours(), "bytes", tmp_path)
    values = {found.figure: found.value for found in measurements}
    assert values["sent_requests"] == LONG_FAULTS + 1
    assert values["parts_sent_bytes"] <= 24_000


def test_a_program_that_fails_is_a_measurement(tmp_path: Path):
    (failure,) = measure.measure(open_ours(), "juggle", tmp_path)
    assert failure.figure == "failed"
    assert failure.text == "KeyError: 'juggle'"
