"""`heedful key`: who may call the service, and what was done through it."""

from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument, Option

from heedful.cli.app import group
from heedful.cli.databases import ask_scope, read
from heedful.cli.printing import answer, columns, command_line, emit, when
from heedful.cli.settings import MAX_OPTION_INTEGER, Limit, Texts, expiry_time, settings
from heedful.lessons.commands import trust_command
from heedful.lessons.lesson import Scope
from heedful.store import keys
from heedful.store.store import Store
from heedful.validation import Document

# Who acted, as the audit names it: on the command line nobody signs in.
COMMAND_LINE_ACTOR = "the command line"
DEFAULT_PERMISSIONS = ["recall,write"]
service_keys = group()


def _end_cell(key: keys.Key) -> Any:
    """Return when a key was revoked, or when it expires, in seconds since 1970."""
    if key.revoked:
        return f"revoked {when(key.revoked)}"
    return key.expires or "never"


KEY_COLUMNS = columns(
    "name may projects key made ends",
    projects=lambda key: key.projects or "all",
    key="shown",
    made="at",
    ends=_end_cell,
)
AUDIT_ENTRY_COLUMNS = columns("action subject by detail n at")


def _document(key: keys.Key) -> Document:
    """Return a key as JSON data, with the part of it that may be shown."""
    return {**asdict(key), "key": key.shown, "revoke": key.revoke}


@service_keys.command()
def create(
    name: Annotated[str, Option(help="A name for the user of the key.")],
    may: Annotated[
        Texts, Option(help="The permissions, as below. [recall,write]")
    ] = None,
    project: Annotated[Texts, Option(help="A project; may be repeated. [all]")] = None,
    expires: Annotated[
        str | None, Option(help="Time until it expires: 12h, 90d. [never]")
    ] = None,
    outside: Annotated[
        bool, Option("--outside", help="Its words wait until you state the key.")
    ] = False,
) -> int:
    """Create a key and print it. It is shown only once: only a hash of its secret is
    stored.

    read: loops, lessons, quarantine. recall: the same without quarantine. write: report
    attempts and episodes, remember. approve: overrides, and reviews of quarantine.
    admin: list the keys and the audit.
    """
    expires_at = expiry_time(expires)
    # --may is repeatable, and one of them may list several permissions.
    permissions = ",".join(may or DEFAULT_PERMISSIONS).split(",")

    async def make(store: Store, scope: Scope) -> tuple[keys.Key, str]:
        return await keys.create(
            store,
            scope.tenant,
            name,
            by=COMMAND_LINE_ACTOR,
            projects=project or [],
            may=[permission.strip() for permission in permissions],
            expires=expires_at,
            outside=outside,
        )

    key, secret = ask_scope(make, new=True)
    source = f"key:{key.id}"
    if outside:
        origin = f"its callers' texts wait until: {trust_command([source])}"
    else:
        cure = command_line("trust", remove=source)
        origin = (
            "its callers' texts count as this machine's, and agents see them at once; "
            f"if others write them (web pages, mail, customers): {cure}"
        )
    projects = ", ".join(key.projects) or "all projects"
    rights = f"{key.name} may {', '.join(key.may)} in {projects}"
    return answer(
        {**_document(key), "secret": secret},
        secret,
        f"{rights} of tenant {settings().tenant}; this key is not shown again",
        origin,
        f"Next: curl -H 'Authorization: Bearer {key.shown}_…' URL/v1/loops",
    )


@service_keys.command("list")
def list_keys() -> int:
    """List the keys of a tenant, newest first, without their secrets."""
    return emit(
        read(keys.newest, MAX_OPTION_INTEGER),
        KEY_COLUMNS,
        key="keys",
        text_columns=3,
        empty="this tenant has no key; heedful key create makes one",
        document=_document,
    )


@service_keys.command()
def revoke(id: Annotated[str, Argument(help="A key from the list, or its id.")]) -> int:
    """Revoke a key: every service refuses it. `quarantine revoke` then removes what it
    wrote.
    """

    async def revoke_key(store: Store, scope: Scope) -> keys.Key:
        return await store.write(scope, keys.revoke, id, COMMAND_LINE_ACTOR)

    key = ask_scope(revoke_key)
    command = command_line("quarantine", "revoke", f"key:{key.id}", by="NAME")
    return answer(
        _document(key),
        f"{key.shown} ({key.name}) is revoked",
        f"If it was stolen: {command}",
    )


@service_keys.command("audit")
def list_audit(limit: Limit = 50) -> int:
    """List what was done through the service in a tenant, newest first."""
    return emit(
        read(keys.audit_rows, limit),
        AUDIT_ENTRY_COLUMNS,
        key="audit",
        text_columns=4,
        empty="nothing was done in this tenant yet",
    )
