"""One step of a network can be exported."""

from __future__ import annotations

import io
import warnings

import onnxruntime
import torch
from hypothesis import given, settings

from examples import examples
from nets.layouts import draws, law, make, networks, observations
from townlet.interfaces.layout import ObservationLayout
from townlet.nets.spec import KeypointsSpec, NetworkSpec, RecurrentSpec
from townlet.town.world.load import load


@settings(law, max_examples=examples(2, 6))
@given(networks())
def test_exported_step_accepts_any_number_of_rows(given: tuple[NetworkSpec, ObservationLayout]) -> None:
    body, layout = make(*given), given[1]
    rows = torch.export.Dim("rows", min=1)
    example = (observations(layout, 3), draws(3, body.hidden_size))
    program = torch.export.export(body, example, dynamic_shapes=({0: rows}, {0: rows})).module()
    obs, hidden = observations(layout, 5, seed=1), draws(5, body.hidden_size, seed=1)
    for ours, theirs in zip(body(obs, hidden), program(obs, hidden), strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)


def test_onnx_gives_the_same_features_and_hidden_state() -> None:
    layout = load("town-foggy").layout
    body = make(KeypointsSpec(hidden="tiny", recurrent=RecurrentSpec(size=16, post_widths=(8,))), layout)
    example = (observations(layout, 3), draws(3, body.hidden_size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(body, example, input_names=["obs", "hidden"], dynamo=True, verbose=False)
    file = io.BytesIO()
    assert program is not None
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    found = session.run(None, {"obs": example[0].numpy(), "hidden": example[1].numpy()})
    for ours, theirs in zip(body(*example), found, strict=True):
        torch.testing.assert_close(torch.from_numpy(theirs), ours, atol=1e-5, rtol=1e-5)
