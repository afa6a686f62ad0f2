"""Infos whose values are made when they are read: as dicts, under Gymnasium's wrappers, and against scalar lanes."""

from __future__ import annotations

import copy
import pickle
import tempfile
from functools import cache
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from edpbrl_gym.envs.common import LaneInfos

ID = "edpbrl/PromptConstruction-v0"
VALUES = {"a": 1, "b": [2], "c": {"d": 3}, "e": None}


class Making:
    """Infos with the values above, "b" and "c" of which count how often they are made."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.infos = LaneInfos(a=1)
        self.infos.defer("b", lambda: self.make("b"))
        self.infos.defer("c", lambda: self.make("c"))
        self.infos["e"] = None

    def make(self, key):
        self.made.append(key)
        return copy.deepcopy(VALUES[key])


def matched(infos):
    match infos:
        case {"b": b, "c": {"d": d}}:
            return b, d
    return None


def updated(infos):
    other = {"z": 0}
    other.update(infos)
    return other


READERS = {
    "dict": dict,
    "unpacked": lambda infos: {**infos},
    "update": updated,
    "items": lambda infos: list(infos.items()),
    "values": lambda infos: list(infos.values()),
    "loop": lambda infos: [(key, infos[key]) for key in infos],
    "reversed": lambda infos: [(key, infos[key]) for key in reversed(infos)],
    "copy": lambda infos: dict(infos.copy()),
    "or": lambda infos: dict(infos | {"a": 5}),
    "reflected or": lambda infos: {"a": 5, "z": 6} | infos,
    "in place or": lambda infos: dict(infos.__ior__({"b": 7})),
    "match": matched,
    "repr": repr,
    "pickle": lambda infos: pickle.loads(pickle.dumps(infos)),
    "deep copy": copy.deepcopy,
    "get": lambda infos: [infos.get("b"), infos.get("x"), infos.get("x", 4)],
    "pop": lambda infos: [infos.pop("b"), infos.pop("x", 4), dict(infos)],
    "popitem": lambda infos: [infos.popitem(), infos.popitem(), dict(infos)],
    "setdefault": lambda infos: [infos.setdefault("b", 4), infos.setdefault("x", 5), dict(infos)],
    "del": lambda infos: [infos.__delitem__("b"), dict(infos)],
    "set": lambda infos: [infos.__setitem__("b", 4), dict(infos)],
    "equal": lambda infos: [infos == VALUES, VALUES == infos, infos == {}, infos == 3],
    "unequal": lambda infos: [infos != VALUES, VALUES != infos, infos != {}, infos != 3],  # noqa: SIM300
    "members": lambda infos: ["b" in infos, "x" in infos, len(infos), list(infos), list(infos.keys()), bool(infos)],
}


@pytest.mark.parametrize("name", READERS)
def test_every_way_of_reading_gives_what_a_dict_gives(name):
    making = Making()
    assert READERS[name](making.infos) == READERS[name](copy.deepcopy(VALUES))
    assert len(making.made) == len(set(making.made))
    again = [making.infos.get(key) for key in list(making.infos)]
    assert all(first is second for first, second in zip(again, making.infos.values(), strict=True))
    assert len(making.made) == len(set(making.made))


def test_asking_for_keys_makes_nothing():
    making = Making()
    READERS["members"](making.infos)
    joined = making.infos | {"x": 1}
    same, popped = making.infos.copy(), making.infos.pop("a")
    assert making.made == [] and popped == 1 and isinstance(joined, LaneInfos)
    assert joined["b"] is same["b"] is making.infos["b"] and making.made == ["b"]
    assert same.keys() == VALUES.keys() and "a" not in making.infos and "x" not in same


@cache
def vocabulary(sizes):
    """A folder with so many tokens for each step."""
    folder = Path(tempfile.mkdtemp(prefix="words-"))
    for step, size in enumerate(sizes):
        (folder / f"s{step}.txt").write_text("".join(f"word {step} {number}\n" for number in range(size)))
    return str(folder), [f"s{step}" for step in range(len(sizes))]


def check_illegal(own, serial, rng, complete):
    """An illegal action in one lane is refused, in the words of the single environment, and no lane moves."""
    lane = int(rng.choice(np.flatnonzero(~complete)))
    actions = np.zeros(own.num_envs, dtype=int)
    actions[lane] = rng.choice([-1, 99])
    with pytest.raises(ValueError, match="Expected an action") as found:
        own.step(actions)
    with pytest.raises(ValueError, match="Expected an action") as expected:
        copy.deepcopy(serial.envs[lane].unwrapped).step(actions[lane])
    assert str(found.value).replace(f" in lane {lane}", "") == str(expected.value)


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    lanes=st.integers(1, 4),
    mode=st.sampled_from(["next_step", "same_step", "disabled"]),
    kinds=st.lists(st.sampled_from(["step", "step", "step", "illegal", "reset"]), max_size=14),
    late=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_infos_read_late_are_those_of_scalar_environments(sizes, lanes, mode, kinds, late, seed):
    """Random actions, illegal ones, ends, seeds and partial resets; read after each step, or all after the last."""
    folder, order = vocabulary(sizes)
    arguments = {"vocabulary": folder, "order": order}
    own = gymnasium.make_vec(ID, num_envs=lanes, autoreset_mode=mode, **arguments)
    makers = [lambda: gymnasium.make(ID, disable_env_checker=True, **arguments)] * lanes
    serial = SyncVectorEnv(makers, autoreset_mode=own.metadata["autoreset_mode"])
    rng = np.random.default_rng(seed)
    found, expected = [own.reset(seed=seed)], [serial.reset(seed=seed)]
    complete = np.zeros(lanes, dtype=bool)
    for kind in kinds:
        masks = own.action_masks()
        if kind == "reset" or (mode == "disabled" and complete.any()):
            mask = complete | (rng.random(lanes) < 0.5)
            mask[rng.integers(lanes)] = True
            seeds = rng.choice([None, 1, 2], size=lanes).tolist()
            found.append(own.reset(seed=seeds, options={"reset_mask": mask.copy()}))
            expected.append(serial.reset(seed=seeds, options={"reset_mask": mask.copy()}))
            complete &= ~mask
        elif kind == "illegal" and not complete.all():
            check_illegal(own, serial, rng, complete)
        else:
            actions = np.array([rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in masks])
            found.append(own.step(actions))
            expected.append(serial.step(actions))
            complete = found[-1][2] & (mode != "same_step")
        if not late:
            found[-1] = copy.deepcopy(found[-1])  # a plain dict
    assert data_equivalence(copy.deepcopy(found), expected, exact=True)
