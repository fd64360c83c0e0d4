"""The same is said once in a minute, and something else meanwhile."""

from heedful import telemetry as seldom


def test_the_same_is_said_once_in_a_while(monkeypatch):
    clock = [5.0]
    monkeypatch.setattr("heedful.telemetry.time.monotonic", lambda: clock[0])
    said = seldom.LogThrottle()
    assert [said.allows("a"), said.allows("a"), said.allows("b")] == [True, False, True]
    clock[0] += seldom.EVERY - 1
    assert not said.allows("a")
    clock[0] += 1
    assert said.allows("a")
    assert not said.allows("a")
