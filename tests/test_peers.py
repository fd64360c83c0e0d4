"""The run beside the peers: its loop, its contract with their programs, its table."""

from __future__ import annotations

from pathlib import Path

from bench.peers import measure, table
from bench.peers.environments import OURS, Environment, Peer, open_ours
from bench.peers.loop import LONG_FAULTS, Double, find_fault
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


def test_our_own_program_keeps_the_contract(tmp_path: Path):
    measurements = measure.measure(open_ours(), "bytes", tmp_path)
    values = {found.figure: found.value for found in measurements}
    assert values["sent_requests"] == LONG_FAULTS + 1
    assert values["parts_sent_bytes"] <= 24_000
