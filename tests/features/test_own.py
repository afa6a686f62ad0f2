"""An encoder of one's own by its import string, and the check of an encoder's name before anything is loaded."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from edpbrl_gym.comparisons.question_files import read_answers, write_questions
from edpbrl_gym.features import (
    CachedEncoder,
    MemoEncoder,
    TextEncoder,
    as_encoder,
    check_encoder_spec,
    embed_tokens,
    load_encoder,
)
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize import best_prompts
from edpbrl_gym.planners import make_planner
from edpbrl_gym.session import QuestionMaker, Session
from edpbrl_gym.vocabulary import Vocabulary
from tests.helpers.encoders import CountingEncoder

OWN = "tests.helpers.encoders:OwnEncoder"
TEXTS = ["a fog", "", "a fog", "dusk"]


@pytest.mark.parametrize(
    "spec",
    ["nonsense", "", "minilm:x", "open_clip:", "precomputed", "a.b:", ":Class", "a..b:C", "a b:C", "a:b:c", 3, None],
)
def test_other_forms_are_refused_with_the_known_ones(spec):
    for check in (check_encoder_spec, load_encoder):
        with pytest.raises(ValueError, match=r"'minilm'.*precomputed:.*'package\.module:Class'.*got"):
            check(spec)


@pytest.mark.parametrize("cache", [False, True])
def test_ones_own_encoder(cache, tmp_path):
    encoder = load_encoder(OWN, cache=cache, cache_folder=tmp_path)
    assert isinstance(encoder, TextEncoder)
    assert (encoder.name, encoder.dimension, encoder.fingerprint) == (OWN, 8, "c0ffee00" * 8)
    rows = encoder.encode(TEXTS)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, CountingEncoder().encode(TEXTS), atol=1e-6)
    assert encoder.encode([]).shape == (0, 8)
    again = load_encoder(OWN, cache=cache, cache_folder=tmp_path)
    np.testing.assert_array_equal(again.encode(TEXTS), rows)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("nowhere.at_all:Encoder", ImportError, "importable module 'nowhere.at_all' for the encoder"),
        ("tests.helpers.encoders:Missing", ImportError, "'tests.helpers.encoders' has no 'Missing', asked for by the"),
        ("tests.helpers.encoders:NamelessEncoder", TypeError, "and encode, got NamelessEncoder without finger"),
        ("tests.helpers.encoders:save_tiny_clip", TypeError, "without arguments, got: .*folder"),
        ("tests.helpers.encoders:TINY_CLIP", TypeError, "a class that makes an encoder, got"),
        ("tests.helpers.encoders:RaggedEncoder", ValueError, r"shape \(1, 8\) from .*RaggedEncoder, got \(1, 7\)"),
        ("tests.features.test_own:_ShortName", ValueError, "fingerprint of '.*_ShortName' of 8 to 128 letters and"),
        ("tests.features.test_own:_Faulty", TypeError, "^object of type 'int' has no len"),  # a bug of its own
    ],
)
def test_a_wrong_encoder_of_ones_own(name, error, said):
    with pytest.raises(error, match=said):
        load_encoder(name, cache=False).encode(["x"])


class _ShortName(CountingEncoder):
    def __init__(self):
        super().__init__(fingerprint="v 1")


class _Faulty:
    def __init__(self):
        len(3)


class Letters:
    """A class as docs/own-features.md shows it: no name, no progress, rows without unit norm."""

    dimension = 26
    fingerprint = "letters-version-1"

    def encode(self, texts):
        return np.array([[1 + text.count(chr(97 + letter)) for letter in range(26)] for text in texts])


WORDS = Vocabulary(("subject", "mood"), (("a lighthouse", "an old fox", "a paper boat"), ("at dusk", "half asleep")))


def test_an_instance_is_taken_wherever_an_encoder_is(tmp_path):
    named, mine = load_encoder("tests.features.test_own:Letters", cache=False), Letters()
    theta = named.encode(["an old fox"])[0]
    questions = write_questions(tmp_path / "questions.csv", [(0, 0, ["a fox", "a boat"]), (0, 1, ["a sea", "dusk"])])
    questions.write_text(questions.read_text().replace("a boat,", "a boat,1").replace("dusk,", "dusk,2"))

    def session(encoder):
        planner = make_planner("adaptive", WORDS, encoder, num_options=2)
        with Session(
            planner, vocabulary=WORDS, encoder=encoder, num_options=2, folder=tmp_path / type(encoder).__name__
        ) as one:
            one.ask()
            one.tell(0)
            one.progress()
            return one.estimate.theta, one.comparisons.features, one.comparisons.metadata["encoder"]

    def lanes(encoder):
        env = gym.make_vec("edpbrl/PromptConstruction-v0", num_envs=2, vocabulary=str(tmp_path / "words"))
        env.unwrapped.model.use_encoder(encoder)
        env.reset(seed=0)
        return env.unwrapped.features, env.unwrapped.model.trajectory_features(env.step(np.array([0, 1]))[0])

    (tmp_path / "words").mkdir()
    for name, tokens in zip(WORDS.names, WORDS.tokens, strict=True):
        (tmp_path / "words" / f"{name}.txt").write_text("\n".join(tokens))
    uses = {
        "load": lambda encoder: (load_encoder(encoder).encode(["fog"]), load_encoder(encoder).name),
        "session": session,
        "pool": lambda encoder: make_planner("greedy_d", WORDS, encoder, num_options=2, episodes=2).num_options,
        "maker": lambda encoder: QuestionMaker(WORDS, encoder, "truncated").encoder.encode(["fog"]),
        "lanes": lanes,
        "answers": lambda encoder: read_answers(questions, encoder)[0].features,
        "user": lambda encoder: SyntheticUser.from_text("fog", encoder).theta,
        "beam": lambda encoder: [prompt.text for prompt in best_prompts(WORDS, encoder, theta, count=2)],
        "model": lambda encoder: best_prompts(WORDS, encoder, theta, count=2, method="model")[0].text,
        "memo": lambda encoder: MemoEncoder(encoder).encode(["fog", "fog"]),
        "cache": lambda encoder: CachedEncoder(encoder, tmp_path / "cache").encode(["fog"]),
    }
    for name, use in uses.items():
        expected, found = use(named), use(mine)
        parts = zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
        for one, other in parts:
            np.testing.assert_array_equal(one, other, err_msg=name)


class _Nameless:
    dimension = 3

    def encode(self, texts):
        return np.ones((len(texts), 3))


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (Letters, "got the class Letters; make an instance of it"),
        (_Nameless(), "with dimension, fingerprint and encode, got _Nameless without fingerprint"),
        (object(), "got object without dimension, fingerprint, encode"),
    ],
)
def test_what_an_instance_lacks_is_said(encoder, message):
    for take in (
        as_encoder,
        lambda one: make_planner("adaptive", WORDS, one, num_options=2),
        lambda one: embed_tokens(WORDS, one),
        lambda one: QuestionMaker(WORDS, one, "truncated"),
        MemoEncoder,
    ):
        with pytest.raises(TypeError, match=f"Expected an encoder .*{message}"):
            take(encoder)
