"""House rules that only the check knows: one factory a family makes a pure check.

A task file names a check as `{"name": "rules:weight", "kilograms": "3.5"}`. The finding
says what is wrong and how to write it, and shows the right form for another value,
never for this task's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from heedful.checks.evaluate import Context
from heedful.loop.record import Finding

SEEN = 60  # characters of a rejected answer that are kept as evidence
HEAD = 400  # characters of an answer in which a right form is looked for

Shown = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A family's rule: its form as a pattern, in words, and shown for values that no
    task has.
    """

    family: str
    pattern: str
    words: str
    shown: Shown


@dataclass(frozen=True, slots=True)
class HouseRule:
    """Accepts `expected` and nothing else, outer white space aside.

    Any other text gets one finding: `form` where it is not in the house's form, `words`
    where the form stands among other words, `value` where the form is right and what
    stands in it is not.
    """

    house: House
    expected: str
    pure: ClassVar[bool] = True

    def __call__(self, candidate: str, context: Context) -> list[Finding]:
        """Return no finding for the right answer, one for any other text; never
        raises.
        """
        answer = candidate.strip()
        if answer == self.expected:
            return []
        part, message, severity = self._fault(answer)
        return [
            Finding(
                check=self.house.family,
                message=message,
                fix=f"{self.house.words}. {self._example(context.attempt)}",
                severity=severity,
                key=f"{self.house.family}: {part}",
                evidence=self._seen(answer),
            )
        ]

    def _fault(self, answer: str) -> tuple[str, str, float]:
        head = answer[:HEAD]
        if head == answer and re.fullmatch(self.house.pattern, answer):
            return (
                "value",
                "the form is right, the value is not the one of the task",
                0.6,
            )
        if re.search(self.house.pattern, head):
            return "words", "there are words around the answer", 0.4
        return "form", "the form is wrong", 0.8

    def _example(self, attempt: int) -> str:
        """Return another value in the right form; each attempt gets a new one."""
        usable = [
            example for example in self.house.shown if self.expected not in example
        ]
        return f"Example: {usable[(attempt - 1) % len(usable)]}" if usable else ""

    def _seen(self, answer: str) -> str:
        """Return the start of a rejected answer, unless it contains the right one."""
        seen = "".join(c if c.isprintable() else " " for c in answer[:SEEN])
        return "" if self.expected in seen else seen


WEIGHT = House(
    family="weight",
    pattern=r"KG:[0-9.]+",
    words="Put KG: in front of the number",
    shown=(
        "KG:7.2 for 7.2 kilograms",
        "31 kilograms = KG:31",
        "KG:0.65 for 0.65 kilograms",
    ),
)
MONEY = House(
    family="money",
    pattern=r"\[[0-9.]+ EUR\]",
    words="Put it in square brackets, with EUR",
    shown=(
        "[61.20 EUR] for 61.20 euros",
        "430 euros = [430 EUR]",
        "[7.85 EUR] for 7.85 euros",
    ),
)
DATE = House(
    family="date",
    pattern=r"[0-9]{1,2}/[A-Z][a-z]{2,8}/[0-9]{4}",
    words="Put slashes between day, month and year",
    shown=(
        "2 July 2021 = 2/July/2021",
        "19 September 2022 = 19/September/2022",
        "11 February 2020 = 11/February/2020",
    ),
)
TEMPERATURE = House(
    family="temperature",
    pattern=r"T\(-?[0-9.]+\)",
    words="Write T and the number in round brackets",
    shown=(
        "T(16) for 16 degrees Celsius",
        "-5 degrees Celsius = T(-5)",
        "T(93) for 93 degrees Celsius",
    ),
)
SHELF = House(
    family="shelf",
    pattern=r"A[0-9]+/S[0-9]+",
    words="Write A and the aisle, a slash, S and the shelf",
    shown=(
        "aisle 15, shelf 4 = A15/S4",
        "A33/S11 for aisle 33, shelf 11",
        "aisle 52, shelf 9 = A52/S9",
    ),
)
TICKET = House(
    family="ticket",
    pattern=r"SD#[0-9]+",
    words="Put SD# in front of the number",
    shown=(
        "SD#5530 for ticket 5530",
        "ticket 118 = SD#118",
        "SD#6094 for ticket 6094",
    ),
)
PRESSURE = House(
    family="pressure",
    pattern=r"P\([0-9]+-[0-9]+\)",
    words="Write P and the range in round brackets",
    shown=(
        "P(6-13) for between 6 and 13 bar",
        "between 71 and 88 bar = P(71-88)",
        "P(27-34) for between 27 and 34 bar",
    ),
)
DURATION = House(
    family="duration",
    pattern=r"[0-9]+h\+[0-9]+m",
    words="Write the hours with h, a plus sign and the minutes with m",
    shown=(
        "8h+20m for 8 hours 20 minutes",
        "13 hours 36 minutes = 13h+36m",
        "10h+55m for 10 hours 55 minutes",
    ),
)
NAME = House(
    family="name",
    pattern=r"[^\W\d_]+/[^\W\d_]+",
    words="Write the family name, a slash and the first name",
    shown=(
        "Omar Haddad = Haddad/Omar",
        "Weber/Nina for Nina Weber",
        "Carlos Vega = Vega/Carlos",
    ),
)


def weight(kilograms: str) -> HouseRule:
    """Logistics: the unit comes first, `KG:7.2`."""
    return HouseRule(WEIGHT, f"KG:{kilograms}")


def money(euros: str) -> HouseRule:
    """Finance: an amount stands in square brackets, `[61.20 EUR]`."""
    return HouseRule(MONEY, f"[{euros} EUR]")


def date(day: int, month: str, year: int) -> HouseRule:
    """Audit: slashes between day, month and year, `2/July/2021`."""
    return HouseRule(DATE, f"{day}/{month}/{year}")


def temperature(celsius: str) -> HouseRule:
    """Lab: `T(16)`."""
    return HouseRule(TEMPERATURE, f"T({celsius})")


def shelf(aisle: int, shelf: int) -> HouseRule:
    """Warehouse: `A15/S4`."""
    return HouseRule(SHELF, f"A{aisle}/S{shelf}")


def ticket(number: int) -> HouseRule:
    """Support: `SD#5530`."""
    return HouseRule(TICKET, f"SD#{number}")


def pressure(low: int, high: int) -> HouseRule:
    """Plant maintenance: `P(6-13)`."""
    return HouseRule(PRESSURE, f"P({low}-{high})")


def duration(hours: int, minutes: int) -> HouseRule:
    """Plant maintenance: a downtime is `8h+20m`."""
    return HouseRule(DURATION, f"{hours}h+{minutes}m")


def name(first: str, family: str) -> HouseRule:
    """HR: the family name comes first, `Haddad/Omar`."""
    return HouseRule(NAME, f"{family}/{first}")
