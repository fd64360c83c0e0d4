"""What the bodies of requests have in common, and texts of a bounded length."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

# The largest id that a store holds.
LARGEST = 2**63 - 1
Id = Annotated[int, Field(ge=1, le=LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Short = Annotated[str, Field(max_length=2_000)]
Long = Annotated[str, Field(max_length=100_000)]
Tags = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20)]


class Body(BaseModel):
    """The body of a request: nothing in it is unknown, and its tenant is the key's, or not said."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    tenant: Annotated[str | None, Field(description="The key's own tenant, else 403.")] = None


def example(**fields: Any) -> ConfigDict:
    """The configuration of a model with that example."""
    return ConfigDict(json_schema_extra={"example": fields})


def saying(config: ConfigDict, **schema: Any) -> ConfigDict:
    """The same with more of JSON Schema: what one field has to do with another."""
    extra: Any = config["json_schema_extra"]
    return ConfigDict(json_schema_extra={**extra, **schema})


def given(name: str, **schema: Any) -> dict[str, Any]:
    """The schema of an object that has that field, fitting that schema."""
    return {"required": [name], "properties": {name: schema}}


class Why(Body):
    """The reason for what is done, which goes on record."""

    model_config: ClassVar[ConfigDict] = example(why="read and found right")

    why: Annotated[str, Field(max_length=2_000)] = ""
