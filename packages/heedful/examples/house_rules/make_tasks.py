"""Write tasks.jsonl beside this file: 9 families x 40 tasks, always the same bytes.

Run it as `python make_tasks.py`; it needs nothing but Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

Value = dict[str, str | int]
EACH = 40

WORDINGS = {
    "weight": (
        "Parcel label, weight: {kilograms} kilograms",
        "Write {kilograms} kilograms on the parcel label.",
        "Label for a crate of {kilograms} kilograms, weight field:",
        "The pallet weighs {kilograms} kilograms. Fill in the weight.",
    ),
    "ticket": (
        "Support log, reference: ticket {number}",
        "Write the reference of ticket {number} in the mail.",
        "The customer asks about ticket {number}. Note its reference.",
        "Service desk, reference for ticket {number}:",
    ),
    "date": (
        "Delivery date for the list: {day} {month} {year}",
        "Write the date {day} {month} {year} on the list.",
        "The audit is on {day} {month} {year}. Note the date.",
        "Contract, date of signing: {day} {month} {year}",
    ),
    "money": (
        "Invoice total: {euros} euros",
        "Write {euros} euros in the invoice.",
        "The supplier asks for {euros} euros. Note the amount.",
        "Travel expenses, amount: {euros} euros",
    ),
    "temperature": (
        "Freezer log, temperature: {celsius} degrees Celsius",
        "Write {celsius} degrees Celsius in the lab log.",
        "The sample was kept at {celsius} degrees Celsius. Log it.",
        "Incubator sheet, reading: {celsius} degrees Celsius",
    ),
    "shelf": (
        "Place of the box: aisle {aisle}, shelf {shelf}",
        "Write aisle {aisle}, shelf {shelf} on the box.",
        "The spare stands in aisle {aisle}, shelf {shelf}. Note the place.",
        "Picking list, place: aisle {aisle}, shelf {shelf}",
    ),
    "pressure": (
        "Boiler sheet, pressure: between {low} and {high} bar",
        "Write between {low} and {high} bar on the gauge plate.",
        "The line must stay between {low} and {high} bar. Note the range.",
        "Valve test, range: between {low} and {high} bar",
    ),
    "duration": (
        "Downtime of the pump: {hours} hours {minutes} minutes",
        "Write {hours} hours {minutes} minutes in the shift log.",
        "The belt stood still for {hours} hours {minutes} minutes. Log it.",
        "Repair report, time spent: {hours} hours {minutes} minutes",
    ),
    "name": (
        "Staff list entry for {first} {family}?",
        "Write the name {first} {family} on the staff list.",
        "Personnel file, name: {first} {family}",
        "A new colleague is called {first} {family}. Fill in the name.",
    ),
}

KILOGRAMS = (
    "3.5 12 0.8 47 6.25 130 2.4 19.5 84 1.75 26 9.3 240 0.4 15.5 58 4.1 73 11.25 36 "
    "5.6 102 0.95 22.5 67 8.05 310 13.8 29 1.2 45.5 91 2.75 18 54.4 160 6.9 39 0.3 77.5"
)
EUROS = (
    "1250 89.90 40 317.25 5600 12.75 998 204.10 73.40 1800 26.95 642 9.99 3150.50 115 "
    "58.30 "
    "2475 16.80 701 349.95 92 4820.75 33.15 560 1099 21.45 784.60 150 6.35 2210 "
    "418.20 95.55 "
    "3700 47.10 865.25 11.90 1340 272.05 68 529.99"
)
CELSIUS = (
    "-20 4 37 -80 22 65 8 121 -18 25.5 42 -70 5.5 30 95 -25 18.5 56 2 72 "
    "-40 10 37.5 -12 60 21 134 -65 7 48 -30 19 80 -8 3.5 28 -196 54 11.5 99"
)
TICKETS = (
    "4812 377 9051 62 7740 1583 2096 845 3319 5127 74 6680 938 4405 8272 519 1364 "
    "7091 286 9934 "
    "3750 605 8168 41 2537 7426 193 5982 6043 870 1219 9308 452 3667 8591 724 2880 "
    "167 5375 6914"
)
MONTHS = (
    "January February March April May June July August September October November "
    "December"
).split()
DAYS = (
    "14 3 28 9 17 30 22 5 11 26 1 19 8 24 13 6 29 16 4 21 "
    "10 27 2 18 25 7 12 31 15 23 20 3 9 28 6 17 1 22 14 26"
)
NAMES = (
    "Maria Lopez, Tom Becker, Aisha Khan, Peter Novak, Lena Fischer, John Carter, "
    "Sofia Rossi, "
    "David Kim, Emma Larsen, Paul Dubois, Grace Obi, Marco Conti, Julia Wagner, Ivan "
    "Petrov, "
    "Hannah Cole, Ali Demir, Clara Jensen, Victor Silva, Ruth Adler, Simon Price, "
    "Elena Costa, "
    "Mark Hughes, Fatima Noor, Jan Kowalski, Alice Morgan, Hugo Martin, Irene Vogel, "
    "Samuel Reed, "
    "Laura Bianchi, Erik Holm, Olivia Grant, Daniel Roth, Anna Schulz, Kevin Walsh, "
    "Teresa Pinto, "
    "Martin Horak, Diana Popa, George Baker, Lucia Romano, Henry Stone"
)


def _dates() -> Iterator[Value]:
    for n, day in enumerate(DAYS.split()):
        month = MONTHS[(5 * n + 2) % 12]
        if int(day) > 28 and month in (
            "February",
            "April",
            "June",
            "September",
            "November",
        ):
            day = "27"
        yield {"day": int(day), "month": month, "year": 2023 + n % 5}


def _names() -> Iterator[Value]:
    for person in NAMES.split(", "):
        first, family = person.split()
        yield {"first": first, "family": family}


def _ranges() -> Iterator[Value]:
    for n in range(EACH):
        low = 2 + (23 * n) % 61
        yield {"low": low, "high": low + 2 + (7 * n) % 15}


def values() -> dict[str, list[Value]]:
    """Return 40 different values for each family, as its check takes them."""
    turns = range(EACH)
    return {
        "weight": [{"kilograms": v} for v in KILOGRAMS.split()],
        "ticket": [{"number": int(v)} for v in TICKETS.split()],
        "date": list(_dates()),
        "money": [{"euros": v} for v in EUROS.split()],
        "temperature": [{"celsius": v} for v in CELSIUS.split()],
        "shelf": [
            {"aisle": 2 + (17 * n) % 41, "shelf": 1 + (5 * n) % 8} for n in turns
        ],
        "pressure": list(_ranges()),
        "duration": [
            {"hours": 2 + (5 * n) % 17, "minutes": 4 + (13 * n) % 56} for n in turns
        ],
        "name": list(_names()),
    }


def tasks() -> Iterator[dict[str, object]]:
    """Return all tasks: the first of each family, then the second of each, and so
    on.
    """
    by_family = values()
    for n in range(EACH):
        for family, wordings in WORDINGS.items():
            value = by_family[family][n]
            yield {
                "id": f"{family}-{n + 1:02}",
                "task": wordings[n % len(wordings)].format(**value),
                "context": {"family": family},
                "checks": [{"name": f"rules:{family}", **value}],
            }


def text() -> str:
    """Return the whole task file."""
    return "".join(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks())


if __name__ == "__main__":
    path = Path(__file__).with_name("tasks.jsonl")
    path.write_text(text(), encoding="utf-8")
    print(f"{path.name}: {len(text().splitlines())} tasks")
