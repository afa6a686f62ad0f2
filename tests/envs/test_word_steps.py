"""Text generation word by word: WordSteps against the plain loop, and under PreferenceQuery."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.envs.wrappers import LearnedRewardVector, PreferenceQuery, WordSteps
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.sampling import sample_prompts, word_prefixes
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.tiny_language_model import write_tiny_model

ID = "edpbrl/TextGeneration-v0"
WORDS, LIMIT = 3, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Two more policies with the same tokens and other weights."""
    folders = [write_tiny_model(tmp_path_factory.mktemp("other"), seed=seed, spread=2.0) for seed in (1, 2)]
    return [load_language_model(place) for place in folders]


def vector(folder, lanes=4, **arguments):
    return gymnasium.make_vec(ID, num_envs=lanes, **{"model": folder, "words": WORDS, "max_tokens": LIMIT, **arguments})


def plain_prompt(policies, choices, uniforms, words, limit, temperature):
    """One lane of WordSteps by full forwards and ``bytes.split``: the prefixes after each step."""
    rules, tokens, waiting, drawn, ended, prefixes = policies[0].rules, [], None, 0, False, []
    for step in range(words):
        while not ended:
            if waiting is None:
                policy = policies[choices[step]]
                with torch.no_grad():
                    given = torch.tensor([[policy.start, *tokens]], device=policy.device)
                    logits = policy.model(input_ids=given).logits[0, -1].double().cpu()
                chances = torch.softmax(logits / temperature, dim=0).cumsum(0).numpy()
                waiting = int(np.searchsorted(chances, uniforms[drawn], side="right"))
                drawn += 1
            data = rules.data([*tokens, waiting])
            if waiting == rules.eos or len(data.split()) > words:
                ended = True
                break
            if len(data.split()) > step + 1:
                break
            tokens.append(waiting)
            waiting = None
            closed = data[-1:].isspace() and len(data.split()) == step + 1
            ended = len(tokens) == limit or (closed and step + 1 == words)
            if closed:
                break
        prefixes.append(rules.text(tokens))
    return prefixes


@pytest.mark.parametrize("limit", [LIMIT, 5])
def test_word_steps_equal_the_plain_loop(folder, others, limit):
    """Every lane with a policy of its own for every word."""
    env = vector(folder, lanes=12, max_tokens=limit)
    wrapped = WordSteps(env, [env.language_model, *others], temperature=0.9)
    rng = np.random.default_rng(5)
    early = 0
    for seed in (7, 8):
        wrapped.reset(seed=seed)
        uniforms = np.random.default_rng(seed).random((12, limit))
        choices = rng.integers(0, 3, size=(WORDS, 12))
        expected = [
            plain_prompt(wrapped.policies, choices[:, lane], uniforms[lane], WORDS, limit, 0.9) for lane in range(12)
        ]
        for step in range(WORDS):
            observations, rewards, terminations, truncations, infos = wrapped.step(choices[step])
            found = [prefixes[step] for prefixes in expected]
            assert infos["prompt"].tolist() == found == env.trajectory_texts(observations)
            assert infos["step"].tolist() == [step + 1] * 12
            assert infos["word"].tolist() == [len(text.encode().split()) for text in found]
            assert terminations.all() == terminations.any() == (step == WORDS - 1)
            assert not truncations.any() and not rewards.any()
        early += sum(int(count) < WORDS for count in infos["word"])
        for prefixes in expected:
            assert prefixes == word_prefixes(prefixes[-1], WORDS)
    assert early  # some prompts ended before their last word


def test_word_steps_with_one_model_draw_as_sampling_does(folder, monkeypatch):
    env = vector(folder, lanes=20)
    wrapped = WordSteps(env, temperature=0.9, seed=11)
    uniforms = torch.from_numpy(np.random.default_rng(11).random((20, LIMIT)))
    wrapped.reset()
    for _ in range(WORDS):
        *_, infos = wrapped.step(np.zeros(20, dtype=int))
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: uniforms)
    samples = sample_prompts(
        env.language_model, 20, words=WORDS, max_tokens=LIMIT, temperature=0.9, generator=torch.Generator()
    )
    assert infos["prompt"].tolist() == samples.texts


def test_word_steps_feed_each_token_once(folder):
    env, fed = vector(folder, lanes=6), []
    wrapped = WordSteps(env, seed=3)
    handle = env.language_model.model.register_forward_pre_hook(
        lambda module, args, given: fed.append(given["input_ids"].numel()), with_kwargs=True
    )
    try:
        wrapped.reset()
        for _ in range(WORDS):
            wrapped.step(np.zeros(6, dtype=int))
    finally:
        handle.remove()
    assert sum(fed) == wrapped._num_drawn.sum()  # one token is fed for each that is drawn: the start, then those chosen


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_questions_word_by_word(folder, others, minilm, mode):
    """H questions an episode; their features are the encoder's embeddings of the truncated prompts."""
    groups, lanes = 2, 3
    env = vector(folder, lanes=groups * lanes, autoreset_mode=mode)
    env.model.use_encoder(minilm)
    user = SyntheticUser.from_text("a quiet city street", minilm, mode="argmax")
    questions = PreferenceQuery(WordSteps(env, [env.language_model, *others]), lanes=lanes, oracle=user)
    _, infos = questions.reset(seed=4)
    actions, shown, episodes = np.arange(groups * lanes) % lanes, [], 0
    while episodes < 3:
        if mode == "disabled" and len(shown) and len(shown) % WORDS == 0:
            questions.reset(options={"reset_mask": np.ones(groups * lanes, dtype=bool)})
        _, rewards, terminations, _, infos = questions.step(actions)
        if infos["_preference"].all():
            assert rewards.reshape(groups, lanes).sum(axis=1).tolist() == [1.0] * groups
            shown.append(infos["question"])
        episodes += int(terminations.all())
    found = questions.comparisons
    assert len(found) == 3 * WORDS * groups == len(shown) * groups
    assert np.unique(found.episode, return_counts=True)[1].tolist() == [WORDS] * (3 * groups)
    texts = np.concatenate(shown)
    assert [list(question) for question in found.texts] == texts.tolist()
    expected = minilm.encode(texts.ravel().tolist()).reshape(len(found), lanes, -1)
    np.testing.assert_array_equal(found.features, expected)
    np.testing.assert_array_equal(found.choice, (expected @ user.theta).argmax(axis=1))
    for episode in range(3 * groups):
        mine = [question for question, number in zip(found.texts, found.episode, strict=True) if number == episode]
        for lane in range(lanes):
            prefixes = [question[lane] for question in mine]
            assert prefixes == word_prefixes(prefixes[-1], WORDS)


def test_token_by_token_lanes_get_apart_and_the_error_says_so(folder, minilm):
    env = vector(folder, lanes=2)
    env.model.use_encoder(minilm)
    questions = PreferenceQuery(env, lanes=2, oracle=SyntheticUser.from_text("rain", minilm))
    questions.reset()
    questions.step([env.rules.eos, 5])
    with pytest.raises(RuntimeError, match="different lengths"):
        questions.step([5, 5])


def test_groups_reset_apart(folder):
    env = vector(folder, lanes=4, autoreset_mode="disabled")
    wrapped = WordSteps(env, seed=1)
    with pytest.raises(ResetNeeded):
        wrapped.step(np.zeros(4, dtype=int))
    wrapped.reset()
    wrapped.step(np.zeros(4, dtype=int))
    _, infos = wrapped.reset(options={"reset_mask": np.array([False, False, True, True])})
    assert infos["_prompt"].tolist() == [False, False, True, True] and infos["prompt"][2] == ""
    *_, terminations, _, infos = wrapped.step(np.zeros(4, dtype=int))
    assert infos["step"].tolist() == [2, 2, 1, 1]
    *_, terminations, _, infos = wrapped.step(np.zeros(4, dtype=int))
    assert terminations.tolist() == [True, True, False, False]
    with pytest.raises(ResetNeeded, match=r"Lanes \[0, 1\] are complete"):
        wrapped.step(np.zeros(4, dtype=int))


def test_learned_rewards_over_words(folder, minilm):
    env = vector(folder)
    env.model.use_encoder(minilm)
    theta = minilm.encode(["a lighthouse at dusk"])[0]
    rewarded = LearnedRewardVector(WordSteps(env, seed=2), theta, kind="step")
    rewarded.reset()
    for _ in range(WORDS):
        observations, rewards, *_, infos = rewarded.step(np.zeros(4, dtype=int))
        np.testing.assert_allclose(rewards, minilm.encode(infos["prompt"].tolist()) @ theta.astype(float), atol=1e-6)


def test_errors_of_word_steps(folder, others, tmp_path):
    env = vector(folder)
    with pytest.raises(TypeError, match="without wrappers, got TestWrapper"):
        WordSteps(type("TestWrapper", (gymnasium.vector.VectorWrapper,), {})(env))
    with pytest.raises(TypeError, match="LanguageModel"):
        WordSteps(env, ["gpt2"])
    with pytest.raises(ValueError, match="at least one policy"):
        WordSteps(env, [])
    with pytest.raises(ValueError, match="temperature"):
        WordSteps(env, temperature=0)
    stranger = write_tiny_model(tmp_path / "few", tokens=("a", " a", "b a"))
    with pytest.raises(ValueError, match="the tokens of"):
        WordSteps(env, [load_language_model(stranger)])
    with pytest.raises(ValueError, match=r"parts of one word at most, got b'b a'"):
        WordSteps(vector(stranger))
    wrapped = WordSteps(env, others)
    wrapped.reset()
    for wrong, message in [(np.zeros(4), "integers"), (np.zeros(3, dtype=int), "shape"), ([0, 1, 2, 0], r"in 0\.\.1")]:
        with pytest.raises(ValueError, match=message):
            wrapped.step(wrong)
