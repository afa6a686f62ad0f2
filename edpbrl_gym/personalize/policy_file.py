"""Policies of Stable-Baselines3, read from their files without unpickling anything.

Such a file is a zip archive. Its member ``data`` is JSON in which objects are pickled, in base64, beside a readable
description; its member ``policy.pth`` holds the weights. Only the readable part is read, and the weights with
``weights_only=True``, which builds tensors and nothing else. The network is made again from the shapes of the weights:
linear layers with one activation between them, which is what the policy "MlpPolicy" is.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._compat import require
from edpbrl_gym._files import errors_naming

__all__ = ["NOTE", "StoredPolicy", "read_policy"]

NOTE = "edpbrl_gym"  # attribute of the saved model that describes its training environment

# what a policy may be, as the description names its class: module -> whether it masks actions
_KINDS = {"stable_baselines3.common.policies": False, "sb3_contrib.common.maskable.policies": True}
# options of a policy that leave its network as it is, or that its weights show
_HARMLESS = {"activation_fn", "net_arch", "ortho_init", "optimizer_class", "optimizer_kwargs", "normalize_images",
             "share_features_extractor"}  # fmt: skip
_ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0.0),
    "LeakyReLU": lambda x: np.where(x > 0, x, 0.01 * x),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
}
_LAYERS, _LAST = "mlp_extractor.policy_net.", "action_net."

Layer = tuple[NDArray[np.float32], NDArray[np.float32]]  # weights (out, in), biases (out,)


@dataclass(frozen=True, eq=False)
class StoredPolicy:
    """The network of a saved policy.

    Attributes:
        layers: Weights and biases of the linear layers, the last one for the actions.
        activation: Name of the activation between them, as in torch.nn.
        masked: Whether it was trained with action masks (MaskablePPO).
        note: What ``save_policy`` noted about its training, or None.
    """

    layers: tuple[Layer, ...]
    activation: str
    masked: bool
    note: dict[str, Any] | None

    @property
    def inputs(self) -> int:
        """Length of the input, a one-hot vector for each step."""
        return int(self.layers[0][0].shape[1])

    @property
    def actions(self) -> int:
        """Number of actions."""
        return len(self.layers[-1][1])

    def probabilities(self, tokens: NDArray[np.int64], values: int) -> NDArray[np.float64]:
        """Probabilities (n, A) of all actions, legal or not.

        Args:
            tokens: Observations, shape (n, H), each 0..values - 1.
            values: Number of values of an observation's entry.

        Raises:
            ValueError: The numbers overflow.
        """
        found: Floats = self.layers[0][1].astype(np.float64) + np.zeros((len(tokens), 1))
        for step, column in enumerate(tokens.T):  # one-hot vectors pick columns
            found += self.layers[0][0].T[step * values + column]
        for weights, biases in self.layers[1:]:
            found = _ACTIVATIONS[self.activation](found) @ weights.T + biases
        powers = np.exp(found - found.max(axis=1, keepdims=True))
        if not np.isfinite(powers).all():
            raise ValueError("Expected finite scores of a policy's actions, got others; its weights are too large")
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def read_policy(source: Path) -> StoredPolicy:
    """Read the network of a PPO or MaskablePPO.

    Raises:
        ValueError: The file is damaged, holds another kind of model, or a network that can't be made again from its
            weights (a policy or a features extractor of one's own, an activation other than those above).
        OSError: It can't be read.
        ModuleNotFoundError: torch isn't installed.
    """
    require("torch", "a policy's weights")
    with errors_naming(source):
        data = source.read_bytes()
    try:
        with _archive(data) as archive:
            described, weights = archive.read("data"), archive.read("policy.pth")
        document = json.loads(described)
        masked, activation = _description(document)
        return StoredPolicy(_layers(_tensors(weights)), activation, masked, _note(document))
    except Exception as error:  # zip, JSON and torch raise many types
        text = " ".join(str(error).split())[:300]
        raise ValueError(
            f"Expected a PPO or MaskablePPO with MlpPolicy, saved by Stable-Baselines3 or save_policy, in {source}; "
            f"got {text or type(error).__name__}"
        ) from error


def _archive(data: bytes) -> zipfile.ZipFile:
    """A zip archive without compressed members: what it holds is no larger than the file."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
        raise ValueError("a compressed archive, which Stable-Baselines3 does not write")
    return archive


def _tensors(data: bytes) -> dict[str, Any]:
    """The tensors of a file of torch, none larger than the file."""
    import torch

    with _archive(data):  # torch would unpack compressed members
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in found.items()
    ):
        raise ValueError("weights that are no tensors by names")
    # a view may repeat the stored numbers any number of times
    if sum(value.numel() * value.element_size() for value in found.values()) > len(data):
        raise ValueError("weights that are larger than their file")
    return found


def _layers(tensors: dict[str, Any]) -> tuple[Layer, ...]:
    """The linear layers from the observation to the actions, checked to fit each other."""
    foreign = [
        name for name in tensors if not name.startswith((_LAYERS, _LAST, "mlp_extractor.value_net.", "value_net."))
    ]
    if foreign:
        raise ValueError(f"a network with {foreign[0]!r}, which is no part of MlpPolicy")
    hidden = sorted({int(name.removeprefix(_LAYERS).partition(".")[0]) for name in tensors if name.startswith(_LAYERS)})
    layers: list[Layer] = []
    for prefix in [*(f"{_LAYERS}{index}." for index in hidden), _LAST]:
        weights, biases = (np.asarray(tensors[f"{prefix}{name}"].numpy()) for name in ("weight", "bias"))
        fits = weights.dtype == biases.dtype == np.float32 and weights.ndim == 2 and biases.shape == weights.shape[:1]
        if not fits or (layers and weights.shape[1:] != layers[-1][1].shape):
            raise ValueError(f"layers of shapes that do not fit, at {prefix}weight {weights.shape}")
        if not (np.isfinite(weights).all() and np.isfinite(biases).all()):
            raise ValueError(f"weights that are not finite, at {prefix}weight")
        layers.append((weights, biases))
    return tuple(layers)


def _description(document: dict[str, Any]) -> tuple[bool, str]:
    """Whether the policy masks actions, and its activation, from what the file says in plain text."""
    kind = document["policy_class"]
    if kind["__module__"] not in _KINDS:
        raise ValueError(f"a policy of the module {kind['__module__']}")
    if not str(document["observation_space"][":type:"]).endswith(".MultiDiscrete'>"):
        raise ValueError(f"observations of the type {document['observation_space'][':type:']}")
    options = {name: value for name, value in document["policy_kwargs"].items() if name[:1] != ":"}
    others = set(options) - _HARMLESS
    if others or document.get("use_sde"):
        raise ValueError(f"a policy with the option(s) {', '.join(sorted(others)) or 'use_sde'}")
    activation = str(options.get("activation_fn", "torch.nn.Tanh")).removesuffix("'>").rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise ValueError(f"a network with the activation {activation}; it can be {', '.join(_ACTIVATIONS)}")
    return _KINDS[kind["__module__"]], activation


def _note(document: dict[str, Any]) -> dict[str, Any] | None:
    """What ``save_policy`` noted, checked."""
    note = document.get(NOTE)
    if note is None:
        return None
    if not (isinstance(note.get("vocabulary_fingerprint"), str) and isinstance(note.get("arguments"), dict)):
        raise ValueError("a note of its training without the vocabulary's fingerprint and the arguments")
    return dict(note)
