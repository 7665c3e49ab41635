"""What a recipe may say about a network. Sizes of inputs never stand here: they come from the observation."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from townlet.config.model import Model

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


class RecurrentSpec(Model):
    """A memory behind the encoder: what was seen earlier can still count."""

    kind: Literal["lstm", "gru"] = Field(
        "lstm", description="lstm keeps things longest; gru has a quarter fewer weights and is about as much faster."
    )
    size: Width = Field(
        256, description="Width of what is remembered. Raise it to remember more; time grows with its square."
    )
    after: Widths = Field(
        (128,), description="Layers behind the memory. More or wider ones can say more about it, and cost more."
    )


class Network(Model):
    """What all networks have."""

    activation: Activation = Field(
        "relu", description="Bend of every layer. relu is fastest, tanh keeps features in [−1, 1], silu is smooth."
    )
    layer_norm: bool = Field(
        False, description="Normalise every layer: steadier with high learning rates, a fifth to a half slower."
    )
    embedding: Width = Field(
        32, description="Width of the vector that stands for each value of a discrete observation. Raise it for many."
    )
    recurrent: RecurrentSpec | None = Field(
        None, description="A memory of earlier steps. Add it when one moment does not show enough to decide."
    )

    @property
    def remembers(self) -> bool:
        """Whether earlier steps can still count."""
        return self.recurrent is not None


class Layered(Network):
    """A network that ends in plain layers."""

    hidden: Size | Widths = Field(
        (128, 128),
        description="Widths of the layers, or tiny (64), small (128, 128), medium (256, 256), large (512, 512). "
        "Wider ones can learn more, need more examples and more time.",
    )

    @property
    def widths(self) -> tuple[int, ...]:
        """The layers in figures."""
        return SIZES[self.hidden] if isinstance(self.hidden, str) else self.hidden


class MlpSpec(Layered):
    """Plain layers over the whole observation."""

    name: Literal["mlp"] = "mlp"


class KeypointsSpec(Layered):
    """Plain layers over where things are as seen from the agent, so that what is learned holds on other maps."""

    name: Literal["keypoints"] = "keypoints"


class PlacesSpec(Layered):
    """Plain layers over what is seen and where each kind of thing was last seen: a memory that need not be learned."""

    name: Literal["places"] = "places"
    recurrent: None = Field(None, description="The notebook is the memory; there is no other.")

    @property
    def remembers(self) -> bool:
        """It does, by itself."""
        return True


class Spatial(Layered):
    """Convolutions over windows and maps, a small encoder for every other part."""

    channels: Widths = Field(
        (16, 32),
        description="Channels of the 3×3 convolutions over windows and maps. More layers see farther, more channels "
        "tell more apart; both cost time.",
    )
    features: Width = Field(128, description="What a window or map is summed up in. Raise it for large windows.")
    parts: Width = Field(32, description="What every other part is summed up in. Raise it for many meters or kinds.")


class SpatialSpec(Spatial):
    """Convolutions over windows and maps, an encoder for every other part, then plain layers over all."""

    name: Literal["spatial"] = "spatial"
    hidden: Size | Widths = Field(
        (128,), description="Layers over all parts together, before a memory. Wider ones relate more of them."
    )


class SpatialRecurrentSpec(Spatial):
    """The network for partial towns: parts → LSTM of 256 → 128."""

    name: Literal["spatial_recurrent"] = "spatial_recurrent"
    hidden: Size | Widths = Field(
        (), description="Layers between the parts and the memory; none by default. Add some to relate parts first."
    )
    recurrent: RecurrentSpec | None = Field(
        RecurrentSpec(), description="The memory. Make it smaller to train faster; null takes it away."
    )


class CnnSpec(Network):
    """Convolutions over pictures: `nature` (Mnih et al. 2015) or `impala` with residuals (Espeholt et al. 2018)."""

    name: Literal["nature", "impala"] = "nature"
    channels: Widths | None = Field(
        None,
        description="By default 32, 64, 64 for nature (always three) and 16, 32, 32 for impala. "
        "Raise them for detailed pictures; time grows with them.",
    )
    features: Width | None = Field(
        None, description="Width of the layer behind the pictures; by default 512 for nature and 256 for impala."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> CnnSpec:
        if self.channels is not None and (not self.channels or (self.name == "nature" and len(self.channels) != 3)):
            raise ValueError("`channels` must be three numbers for nature, and at least one for impala")
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of the convolutions, in figures."""
        return self.channels or CNN_CHANNELS[self.name]

    @property
    def width(self) -> int:
        """Width of the layer behind them, in figures."""
        return self.features or CNN_FEATURES[self.name]


NetworkSpec = Annotated[
    MlpSpec | KeypointsSpec | PlacesSpec | SpatialSpec | SpatialRecurrentSpec | CnnSpec, Field(discriminator="name")
]
