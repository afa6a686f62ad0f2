"""Policies of Stable-Baselines3, read without unpickling: the same network, and nothing that a stranger put in runs."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zipfile

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import torch
from gymnasium import spaces

from edpbrl_gym.personalize.policy_file import read_policy
from tests.helpers.bombs import Bomb

HORIZON, VALUES = 4, 6


class Steps(gymnasium.Env):
    """Observations and actions as those of prompts."""

    observation_space = spaces.MultiDiscrete([VALUES] * HORIZON)
    action_space = spaces.Discrete(VALUES - 1)

    def reset(self, *, seed=None, options=None):
        return np.zeros(HORIZON, dtype=np.int64), {}

    def step(self, action):
        return np.zeros(HORIZON, dtype=np.int64), 0.0, True, False, {}


def saved(path, kind="PPO", env=None, **options):
    """An untrained model with uneven weights, and its file."""
    import stable_baselines3

    made = getattr(sb3_contrib if kind == "MaskablePPO" else stable_baselines3, kind)
    model = made(options.pop("policy", "MlpPolicy"), env or Steps(), seed=0, device="cpu", **options)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.5)
    model.save(path)
    return model


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, changes, compression=zipfile.ZIP_STORED):
    """The same archive with some members replaced (None: left out)."""
    contents = members(path) | changes
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in contents.items():
            if data is not None:
                archive.writestr(name, data)
    return path


def described(path, **changes):
    """The same file with other entries in its description."""
    document = json.loads(members(path)["data"])
    return rewritten(path, {"data": json.dumps({**document, **changes}).encode()})


def weights(path, change):
    """The same file after ``change`` of its weights, a dict."""
    found = torch.load(io.BytesIO(members(path)["policy.pth"]), weights_only=True)
    stream = io.BytesIO()
    torch.save(change(found), stream)
    return rewritten(path, {"policy.pth": stream.getvalue()})


@pytest.mark.parametrize("kind", ["PPO", "MaskablePPO", "A2C"])
@pytest.mark.parametrize(
    "network",
    [
        {},
        {"net_arch": [8]},
        {"net_arch": {"pi": [], "vf": [3]}},
        {"net_arch": [7, 5, 9], "activation_fn": torch.nn.ReLU, "ortho_init": False, "share_features_extractor": False},
        {"activation_fn": torch.nn.ELU, "optimizer_class": torch.optim.SGD},
        {"activation_fn": torch.nn.LeakyReLU, "optimizer_kwargs": {"betas": (0.5, 0.9)}},
    ],
    ids=["default", "small", "linear", "deep", "ELU", "LeakyReLU"],
)
def test_the_probabilities_are_those_that_stable_baselines_computes(kind, network, tmp_path):
    if kind == "A2C":  # whose optimiser takes no eps of Adam
        network = {name: value for name, value in network.items() if not name.startswith("optimizer")}
    model = saved(tmp_path / "policy.zip", kind, policy_kwargs=network)
    found = read_policy(tmp_path / "policy.zip")
    assert found.masked == (kind == "MaskablePPO") and found.note is None
    assert (found.inputs, found.actions) == (HORIZON * VALUES, VALUES - 1)
    tokens = np.random.default_rng(0).integers(0, VALUES, size=(50, HORIZON))
    with torch.no_grad():
        tensors, _ = model.policy.obs_to_tensor(tokens)
        expected = model.policy.get_distribution(tensors).distribution.probs.double().numpy()
    np.testing.assert_allclose(found.probabilities(tokens, VALUES), expected, atol=2e-5)  # torch computes in float32
    assert expected.std(axis=0).max() > 0.05  # observations matter, so that a mix-up would show


def test_pickled_objects_in_the_description_are_not_unpickled(tmp_path):
    path, mark = tmp_path / "policy.zip", tmp_path / "mark"
    saved(path)
    expected = read_policy(path).probabilities(np.zeros((1, HORIZON), dtype=np.int64), VALUES)
    document = json.loads(members(path)["data"])
    bomb = base64.b64encode(pickle.dumps(Bomb(mark))).decode()
    for value in document.values():
        if isinstance(value, dict) and ":serialized:" in value:
            value[":serialized:"] = bomb
    document["more"] = {":type:": "x", ":serialized:": bomb}
    rewritten(path, {"data": json.dumps(document).encode()})
    from stable_baselines3 import PPO

    with pytest.raises(FileExistsError):  # the file is harmful to whoever unpickles it: the second bomb finds the mark
        PPO.load(path)
    mark.rmdir()
    np.testing.assert_array_equal(
        read_policy(path).probabilities(np.zeros((1, HORIZON), dtype=np.int64), VALUES), expected
    )
    assert not mark.exists()


@pytest.mark.parametrize("form", ["torch", "old torch", "pickle"])
def test_pickled_objects_among_the_weights_are_refused(form, tmp_path):
    path, mark = tmp_path / "policy.zip", tmp_path / "mark"
    saved(path)
    stream = io.BytesIO()
    if form == "pickle":
        pickle.dump(Bomb(mark), stream, protocol=2)
    else:
        torch.save({"action_net.weight": Bomb(mark)}, stream, _use_new_zipfile_serialization=form == "torch")
    rewritten(path, {"policy.pth": stream.getvalue()})
    with pytest.raises(ValueError, match="Expected a PPO or MaskablePPO"):
        read_policy(path)
    assert not mark.exists()


def larger(found):
    return found | {"action_net.bias": torch.zeros(1).expand(10**9)}


def infinite(found):
    found["action_net.weight"][1, 2] = torch.nan
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: rewritten(path, {}, zipfile.ZIP_DEFLATED), "compressed"),
        (lambda path: rewritten(path, {"policy.pth": None}), "policy.pth"),
        (lambda path: rewritten(path, {"data": b"{" * 100_000}), "PPO"),
        (lambda path: rewritten(path, {"data": b"[" * 100_000}), "PPO"),
        (lambda path: rewritten(path, {"data": b"[]"}), "PPO"),
        (lambda path: described(path, policy_class={"__module__": "mine.policies"}), "module mine.policies"),
        (lambda path: described(path, policy_kwargs={"features_extractor_class": "x"}), "features_extractor_class"),
        (lambda path: described(path, policy_kwargs={"activation_fn": "<class 'mine.Odd'>"}), "activation Odd"),
        (lambda path: described(path, use_sde=True), "use_sde"),
        (lambda path: described(path, observation_space={":type:": "<class 'x.Box'>"}), "Box"),
        (lambda path: described(path, edpbrl_gym={"arguments": {}}), "fingerprint"),
        (lambda path: described(path, edpbrl_gym=[1]), "PPO"),
        (lambda path: weights(path, larger), "larger than their file"),
        (lambda path: weights(path, infinite), "not finite"),
        (lambda path: weights(path, list), "no tensors"),
        (lambda path: weights(path, lambda found: found | {"extra.0.weight": torch.zeros(1)}), "extra.0.weight"),
        (lambda path: weights(path, lambda found: found | {"action_net.bias": torch.zeros(2)}), "do not fit"),
        (lambda path: weights(path, lambda found: found | {"action_net.weight": torch.zeros(5, 63)}), "do not fit"),
        (lambda path: weights(path, lambda found: found | {"action_net.bias": torch.zeros(5).double()}), "do not fit"),
    ],
)
def test_files_that_hold_no_such_network_are_refused(change, message, tmp_path):
    saved(tmp_path / "policy.zip")
    with pytest.raises(ValueError, match=message):
        read_policy(change(tmp_path / "policy.zip"))


def test_numbers_that_overflow_are_an_error(tmp_path):
    path = tmp_path / "policy.zip"
    saved(path, policy_kwargs={"net_arch": [4] * 9, "activation_fn": torch.nn.ReLU})
    weights(path, lambda found: {name: torch.full_like(value, 3e38) for name, value in found.items()})
    with pytest.raises(ValueError, match="too large"), np.errstate(all="ignore"):
        read_policy(path).probabilities(np.zeros((2, HORIZON), dtype=np.int64), VALUES)


def test_other_policies_of_the_same_libraries_are_refused(tmp_path):
    class Pictures(Steps):
        observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)

    saved(tmp_path / "cnn.zip", env=Pictures(), policy="CnnPolicy", n_steps=8, batch_size=8)
    with pytest.raises(ValueError, match="Box"):
        read_policy(tmp_path / "cnn.zip")
    saved(tmp_path / "dqn.zip", "DQN", buffer_size=10)
    with pytest.raises(ValueError, match="stable_baselines3.dqn"):
        read_policy(tmp_path / "dqn.zip")
