"""Types that the messages of the page share."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

FRAME_RATE: Final = 5.0  # frames per second
MAX_MESSAGE_BYTES: Final = 1 << 17  # from a client; a longer message closes the connection with 1009

RunName = Annotated[str, Field(min_length=1, max_length=200, description="Name of a run.")]
Speed = Annotated[float, Field(ge=0.2, le=200, description="Steps per second.")]
Side = Annotated[Literal[0, 1], Field(description="Which of two towns side by side; 0 is the left or only one.")]
CheckpointName = Annotated[str, Field(min_length=1, max_length=60, description="latest, best, or a checkpoint's name.")]
OutputKind = Literal["values", "probabilities", "none"]  # what an agent's outputs are


class Message(BaseModel):
    """Base of all messages: strict types, no unknown fields, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
