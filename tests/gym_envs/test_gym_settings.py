"""Settings of Gymnasium environments in recipes, and rejected ones."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from townlet.config.models import StrictModel
from townlet.gym.settings import GymSettings
from townlet.gym.wrappers.spec import TimeLimitSpec


def test_wrappers_are_chosen_by_name() -> None:
    settings = GymSettings.model_validate(
        {"wrappers": ({"name": "time_limit", "steps": 9}, {"name": "encode", "to": "binary"})}
    )
    assert [w.name for w in settings.wrappers] == ["time_limit", "encode"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"wrappers": ({"name": "fly"},)}, "fly"),
        ({"wrappers": ({"name": "time_limit", "steps": 0},)}, "steps"),
        ({"wrappers": ({"name": "frame_skip", "frames": 4, "max_frames": 2},)}, "max_frames"),
        ({"wrappers": ({"name": "mountain_car_shaping"},)}, "all weights are 0"),
        ({"wrappers": ({"name": "action_mask"}, {"name": "action_mask", "valid": (0,)})}, "twice"),
        ({"frame_stack": 0}, "frame_stack"),
        ({"vectorization": "threads"}, "vectorization"),
        ({"skip": 4}, "skip"),
        ({"frame_skip": "4"}, "frame_skip"),
    ],
)
def test_errors_name_the_key(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        GymSettings.model_validate(given)


def test_unshaped_drops_shaping_wrappers() -> None:
    settings = GymSettings.model_validate({"wrappers": ({"name": "cart_pole_shaping"}, {"name": "sticky_actions"})})
    assert [w.name for w in settings.unshaped().wrappers] == ["sticky_actions"]


def test_a_time_limit_may_hold_in_training_only() -> None:
    limits = ({"name": "time_limit", "steps": 5, "training_only": True}, {"name": "time_limit", "steps": 9})
    settings = GymSettings.model_validate({"wrappers": limits})
    assert [w.steps for w in settings.unshaped().wrappers if isinstance(w, TimeLimitSpec)] == [9]


def models(of: type[StrictModel]) -> set[type[StrictModel]]:
    """A model and all models in its fields."""
    found: set[type[StrictModel]] = set()
    to_see: list[Any] = [of]
    while to_see:
        model = to_see.pop()
        if isinstance(model, type) and issubclass(model, StrictModel):
            found.add(model)
            to_see += [field.annotation for field in model.model_fields.values()]
        else:
            to_see += [a for a in getattr(model, "__args__", ()) if a is not model]
    return found


def test_every_key_has_a_description() -> None:
    seen = models(GymSettings)
    assert len(seen) > 10
    for model in seen:
        for key, field in model.model_fields.items():
            assert field.description or key == "name", f"{model.__name__}.{key}"
