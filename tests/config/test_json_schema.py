"""The JSON Schema for editors."""

from __future__ import annotations

import json

from pydantic import Field

from townlet.config.models import StrictModel, json_schema


class Part(StrictModel):
    """A part."""

    required: int = Field(description="A key that is called like a word of the schema language.")
    share: float = Field(0.5, ge=0, le=1, description="Raise it to get more.")


class Whole(StrictModel):
    """A whole file."""

    parts: tuple[Part, ...]
    mode: str


def test_no_key_is_required_but_a_key_of_that_name_stays() -> None:
    schema = json_schema(Whole)
    assert "required" not in schema
    assert "required" not in schema["$defs"]["Part"]
    assert schema["$defs"]["Part"]["properties"]["required"]["type"] == "integer"


def test_descriptions_ranges_and_unknown_keys_reach_the_editor() -> None:
    schema = json_schema(Whole)
    share = schema["$defs"]["Part"]["properties"]["share"]
    assert (share["description"], share["minimum"], share["maximum"]) == ("Raise it to get more.", 0, 1)
    assert schema["additionalProperties"] is False
    assert schema["description"] == "A whole file."
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_further_top_level_keys_are_added() -> None:
    schema = json_schema(Whole, {"extends": {"type": "string"}})
    assert list(schema["properties"]) == ["extends", "parts", "mode"]
    assert json.loads(json.dumps(schema)) == schema
