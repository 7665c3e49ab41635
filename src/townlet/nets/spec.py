"""Settings of networks in recipes. Input sizes follow from the observation."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from townlet.config.models import StrictModel

Width = Annotated[int, Field(ge=1, le=65536)]
Widths = tuple[Width, ...]
Size = Literal["tiny", "small", "medium", "large"]
Activation = Literal["relu", "tanh", "silu"]

SIZES: Final[dict[str, tuple[int, ...]]] = {
    "tiny": (64,),
    "small": (128, 128),
    "medium": (256, 256),
    "large": (512, 512),
}
CNN_CHANNELS: Final[dict[str, tuple[int, ...]]] = {"nature": (32, 64, 64), "impala": (16, 32, 32)}
CNN_FEATURES: Final = {"nature": 512, "impala": 256}


class RecurrentSpec(StrictModel):
    """A recurrent layer after the encoder."""

    kind: Literal["lstm", "gru"] = Field(
        "lstm", description="lstm remembers longer; gru has a quarter fewer weights and is about a quarter faster."
    )
    size: Width = Field(
        256, description="Width of the hidden state. Higher remembers more; time grows with its square."
    )
    post_widths: Widths = Field(
        (128,),
        description="Widths of the layers after the recurrent one. Wider layers can express more, but cost more.",
    )


class BaseNetworkSpec(StrictModel):
    """Settings that all networks have."""

    activation: Activation = Field(
        "relu", description="Activation function. relu is fastest, tanh keeps features in [−1, 1], silu is smooth."
    )
    layer_norm: bool = Field(
        False, description="Layer normalization: more stable with high learning rates, a fifth to a half slower."
    )
    embedding: Width = Field(
        32, description="Width of the embedding of each value of a discrete observation. Raise it for many values."
    )
    recurrent: RecurrentSpec | None = Field(
        None, description="A recurrent layer. Add it where one observation does not show enough to decide."
    )

    @property
    def is_recurrent(self) -> bool:
        return self.recurrent is not None


class LayeredSpec(BaseNetworkSpec):
    """Settings of networks with an MLP over their features, possibly followed by a recurrent layer."""

    hidden: Size | Widths = Field(
        (128, 128),
        description="Widths of the layers, or tiny (64), small (128, 128), medium (256, 256), large (512, 512). "
        "Wider layers can learn more, but need more data and more time.",
    )

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the layers, with a named size resolved."""
        return SIZES[self.hidden] if isinstance(self.hidden, str) else self.hidden


class MlpSpec(LayeredSpec):
    """MLP over the whole observation."""

    name: Literal["mlp"] = "mlp"


class KeypointsSpec(LayeredSpec):
    """MLP over positions of things relative to the agent, so that what is learned transfers to other maps."""

    name: Literal["keypoints"] = "keypoints"


class MapMemorySpec(LayeredSpec):
    """MLP over what is in view and where each kind of thing was last seen: a hand-coded memory, not a learned one."""

    name: Literal["map_memory"] = "map_memory"
    recurrent: None = Field(None, description="Always null: the map memory takes its place.")

    @property
    def is_recurrent(self) -> bool:
        """True: the map memory is its hidden state."""
        return True


class BaseSpatialSpec(LayeredSpec):
    """Convolutions over windows and maps, and small encoders of the remaining blocks."""

    channels: Widths = Field(
        (16, 32),
        description="Channels of the 3×3 convolutions over windows and maps. More layers see farther, more channels "
        "distinguish more; both cost time.",
    )
    features: Width = Field(128, description="Features of each window or map. Raise it for large windows.")
    block_features: Width = Field(32, description="Features of each remaining block. Raise it for many affordances.")


class SpatialSpec(BaseSpatialSpec):
    """Convolutions over windows and maps, encoders of the remaining blocks, then an MLP over all."""

    name: Literal["spatial"] = "spatial"
    hidden: Size | Widths = Field(
        (128,),
        description="Widths of the layers over all blocks, before a recurrent layer. Wider ones combine more features.",
    )


class SpatialRecurrentSpec(BaseSpatialSpec):
    """The network for partially observable towns: blocks → LSTM of 256 → 128."""

    name: Literal["spatial_recurrent"] = "spatial_recurrent"
    hidden: Size | Widths = Field(
        (), description="Widths of the layers between the blocks and the recurrent layer; none by default."
    )
    recurrent: RecurrentSpec | None = Field(
        RecurrentSpec(), description="The recurrent layer. A smaller one trains faster; null removes it."
    )


class CnnSpec(BaseNetworkSpec):
    """Convolutions over images: `nature` (Mnih et al. 2015) or `impala` with residuals (Espeholt et al. 2018)."""

    name: Literal["nature", "impala"] = "nature"
    channels: Widths | None = Field(
        None,
        description="By default 32, 64, 64 for nature (always three) and 16, 32, 32 for impala. "
        "More suit detailed images, but take longer.",
    )
    features: Width | None = Field(
        None, description="Width of the layer after the convolutions; by default 512 for nature and 256 for impala."
    )

    @model_validator(mode="after")
    def _validate(self) -> CnnSpec:
        if self.channels is not None and (not self.channels or (self.name == "nature" and len(self.channels) != 3)):
            raise ValueError("`channels` must be three numbers for nature, and at least one for impala")
        return self

    @property
    def conv_channels(self) -> tuple[int, ...]:
        """Channels of the convolutions, with defaults resolved."""
        return self.channels or CNN_CHANNELS[self.name]

    @property
    def output_width(self) -> int:
        """Width of the layer after the convolutions, with defaults resolved."""
        return self.features or CNN_FEATURES[self.name]


NetworkSpec = Annotated[
    MlpSpec | KeypointsSpec | MapMemorySpec | SpatialSpec | SpatialRecurrentSpec | CnnSpec, Field(discriminator="name")
]
