"""The page of access keys, and of what was done with them."""

from heedful.errors import NotFound
from heedful.store import keys as key_store
from heedful.validation import MAX_SHOWN_ROWS, Document
from heedful_server.web.lists import table, unknown_filters
from heedful_server.web.site import Visit, page_links

MAX_SHOWN_KEYS = 200


async def keys(visit: Visit) -> Document:
    """Show the keys of the tenant, and the newest rows of its audit."""
    answer = await visit.get("/v1/keys", limit=MAX_SHOWN_KEYS)
    audit = await visit.get(
        "/v1/audit", limit=MAX_SHOWN_ROWS, cursor=visit.query_text("cursor")
    )
    return {
        "heading": "Keys",
        "tables": [
            table("keys", ("name", "may", "projects", "made", "ends")),
            table("audit", ("what was done", "by", "when"), title="Audit"),
        ],
        "nothing": {
            "words": "This tenant has no key.",
            "command": "heedful key create --name NAME",
        },
        "keys": answer["items"],
        "audit": audit["items"],
        "unknown": unknown_filters(visit.query),
        **page_links(visit, audit["next"]),
    }


async def revoke_key(visit: Visit) -> str:
    """Revoke a key that the visitor sees, as `heedful key revoke` does."""
    caller = visit.caller
    id = visit.form_text("id")
    seen_keys = await caller.read(
        key_store.newest, MAX_SHOWN_KEYS, projects=caller.key.projects
    )
    if id not in [key.id for key in seen_keys]:
        raise NotFound("key", id, f"the keys of {caller.key.tenant}")
    key = await caller.write(key_store.revoke, id, caller.by)
    return f"{key.name} is revoked. If it was stolen: {key.revoke}"
