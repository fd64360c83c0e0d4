"""The question before several texts are released of which some may be attacks.

One gesture releases one text of the inbox. If several different ones are to be released
at once, and one has signs of danger or was written by strangers, nothing is released
yet: a page shows these texts whole, and asks whether they are meant, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain

from heedful.web import inbox
from heedful.web.addresses import own_address
from heedful.web.site import REVIEWING, Document, SiteAction, SitePage, Visit

PAGE_ADDRESS = "/quarantine/release"


async def release(visit: Visit) -> str:
    """Release texts from quarantine, or ask first whether the dangerous ones are meant.

    The field "sure" of a form says that the question was answered.
    """
    ids = inbox.ruled_ids(visit.form)
    if ids and not visit.form.get("sure"):
        rows = await _waiting_rows(visit, ids)
        is_one_text = sum(len(row.wordings) for row in rows) == 1
        if not is_one_text and any(row.is_suspect for row in rows):
            visit.session.asked = dict(visit.form)
            visit.following = visit.link(PAGE_ADDRESS)
            return ""
    return await inbox.review(visit, "release", "released: recall may show it")


async def _waiting_rows(visit: Visit, ids: Sequence[int]) -> list[inbox.InboxRow]:
    """Return the rows of the inbox that have only these of the texts that wait."""
    rows, _ = await visit.caller.read(inbox.groups, ids=ids)
    return rows


async def second_look(visit: Visit) -> Document:
    """Show the texts that may be attacks among those that were to be released."""
    asked = visit.session.asked
    rows = await _waiting_rows(visit, inbox.ruled_ids(asked))
    suspects = [row for row in rows if row.is_suspect]
    others = [row for row in rows if not row.is_suspect]
    return {
        "suspects": list(map(asdict, suspects)),
        "suspect_ids": _ids_of(suspects),
        "other_ids": _ids_of(others),
        "why": asked.get("why", ""),
        "list_address": own_address(asked.get("back", "")),
    }


def _ids_of(rows: Sequence[inbox.InboxRow]) -> list[int]:
    """Return the ids of the texts of rows."""
    return list(chain.from_iterable(row.ids for row in rows))


PAGES = (
    SitePage(
        address=PAGE_ADDRESS,
        template="second_look",
        title="Release these, too?",
        make=second_look,
        may=REVIEWING,
    ),
)
ACTIONS = (SiteAction(release, ("approve",)),)
