"""Whether a connection may serve: its role, its server and its schema."""

from __future__ import annotations

from heedful.errors import RoleRefused, StoreNewer, StoreOlder, StoreUnavailable
from heedful.store.address import SCHEMA
from heedful.store.parts import newest
from heedful.store.session import Row, Session

SERVER = 160_000

_WHO = f"""
select current_user::text as role, current_database()::text as database,
  current_setting('server_version_num')::int as server,
  r.rolsuper as super, r.rolbypassrls as bypass, count(c.oid) > 0 as made,
  coalesce(bool_or(pg_has_role(c.relowner, 'member')), false) as owner
from pg_roles r left join (
  pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = '{SCHEMA}'
) on c.relkind = 'r'
where r.rolname = current_user group by r.rolsuper, r.rolbypassrls
"""
_VERSIONS = f"select part, max(number)::int from {SCHEMA}.schema_version group by part"


_MIGRATE = "run heedful migrate as the role that owns its tables"


def admit(session: Session) -> None:
    """Raises RoleRefused, StoreOlder, StoreNewer, StoreUnavailable."""
    found = who(session)
    if found["server"] < SERVER:
        raise StoreUnavailable(
            f"this server is PostgreSQL {found['server'] // 10_000}; heedful needs 16 or newer"
        )
    of_role(found)
    of_schema(session, found)


def who(session: Session) -> Row:
    """What a connection is to this server and this database."""
    found: Row = session.execute(_WHO).fetchone()
    return found


def of_role(found: Row) -> str:
    """The role; RoleRefused where row-level security would not hold it."""
    for flag, what in (
        ("super", "is a superuser"),
        ("bypass", "has BYPASSRLS"),
        ("owner", "owns heedful's tables"),
    ):
        if found[flag]:
            raise RoleRefused(
                f"role {found['role']} {what}, so row-level security would not hold it; "
                "heedful migrate --role heedful makes a role for the service: name it in the URL"
            )
    return str(found["role"])


def of_schema(session: Session, found: Row) -> int:
    """The number of the schema. Raises StoreOlder, StoreNewer."""
    where = f"database {found['database']}"
    if not found["made"]:
        raise StoreOlder(f"{where} has no schema; {_MIGRATE}")
    parts = {row[0]: row[1] for row in session.execute(_VERSIONS)}
    has = int(parts.get("pre", 0))
    if parts.get("post", 0) > newest():
        raise StoreNewer(
            f"{where} has schema {has}, this heedful knows {newest()}; upgrade heedful to open it"
        )
    if has < newest():
        raise StoreOlder(f"{where} has schema {has}, this heedful needs {newest()}; {_MIGRATE}")
    return has
