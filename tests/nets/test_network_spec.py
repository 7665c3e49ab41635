"""Network settings in recipes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from townlet.nets.spec import (
    CnnSpec,
    KeypointsSpec,
    MlpSpec,
    NetworkSpec,
    RecurrentSpec,
    SpatialRecurrentSpec,
    SpatialSpec,
)

ADAPTER: TypeAdapter[Any] = TypeAdapter(NetworkSpec)
SPECS = (MlpSpec, KeypointsSpec, SpatialSpec, SpatialRecurrentSpec, CnnSpec)


@pytest.mark.parametrize(
    ("size", "widths"),
    [("tiny", (64,)), ("small", (128, 128)), ("medium", (256, 256)), ("large", (512, 512)), ((7,), (7,))],
)
def test_named_sizes_expand_to_widths(size: Any, widths: tuple[int, ...]) -> None:
    assert ADAPTER.validate_python({"name": "mlp", "hidden": size}).widths == widths


@pytest.mark.parametrize("kind", SPECS)
def test_spec_is_selected_by_name_and_survives_a_round_trip(kind: Any) -> None:
    spec = kind(recurrent=RecurrentSpec(kind="gru", size=32, post_widths=()))
    assert ADAPTER.validate_python(spec.model_dump()) == spec
    assert ADAPTER.validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize("kind", [*SPECS, RecurrentSpec])
def test_every_key_has_a_description(kind: Any) -> None:
    assert [name for name, info in kind.model_fields.items() if name != "name" and not info.description] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "mpl"},
        {"name": "mlp", "hidden": "huge"},
        {"name": "mlp", "hidden": (0,)},
        {"name": "mlp", "channels": (3,)},
        {"name": "mlp", "recurrent": {"kind": "rnn"}},
        {"name": "nature", "channels": (8, 8)},
        {"name": "impala", "channels": ()},
    ],
)
def test_invalid_networks_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(wrong)
