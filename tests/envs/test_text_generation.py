"""Text generation token by token, single and vector."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import SyncVectorEnv

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.language.sampling import sample_prompts
from tests.helpers.tiny_language_model import write_tiny_model

ID = "edpbrl/TextGeneration-v0"
WORDS, LIMIT = 3, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def single(folder, **arguments):
    return gymnasium.make(ID, **{"model": folder, "words": WORDS, "max_tokens": LIMIT, **arguments}).unwrapped


def vector(folder, lanes=4, **arguments):
    return gymnasium.make_vec(ID, num_envs=lanes, **{"model": folder, "words": WORDS, "max_tokens": LIMIT, **arguments})


def draw(rng, masks, rules=None):
    """Legal actions; with the rules half of them begin with white space or end the prompt."""
    chosen = []
    for mask in np.asarray(masks, dtype=bool):
        if rules is not None and rng.random() < 0.5 and mask.any():
            mask = mask & ~rules.continues  # EOS among them
        chosen.append(rng.choice(np.flatnonzero(mask)) if mask.any() else 0)
    return np.array(chosen)


def test_episodes_follow_the_text(folder):
    """Masks, ends and infos against the bytes of the text and ``bytes.split``."""
    env, rng, ends = single(folder), np.random.default_rng(1000), set()
    rules = env.rules
    for _ in range(60):
        observation, info = env.reset()
        data, chosen, done = b"", [], False
        assert observation.tolist() == [rules.size] * LIMIT and info["prompt"] == "" and info["step"] == 0
        while not done:
            for token in rng.integers(0, rules.size, size=20).tolist():
                fits = rules.allowed[token] and len((data + rules.pieces[token]).split()) <= WORDS
                assert info["action_mask"][token] == (fits or token == rules.eos)
            np.testing.assert_array_equal(info["action_mask"], env.action_masks())
            action = draw(rng, info["action_mask"][None], rules)[0]
            observation, reward, done, truncated, info = env.step(action)
            chosen.append(int(action))
            data += rules.pieces[action]
            assert observation.tolist() == chosen + [rules.size] * (LIMIT - len(chosen))
            assert (reward, truncated, info["step"]) == (0.0, False, len(chosen))
            assert info["prompt"] == env.tokenizer.decode(chosen, skip_special_tokens=True).strip(" \t\n\v\f\r")
            closed = done or not data or data[-1:].isspace()
            assert info["word"] == len(data.split()) - (not closed)
            full = len(data.split()) == WORDS and data[-1:].isspace()
            reasons = (action == rules.eos, len(chosen) == LIMIT, full)
            assert done == any(reasons)
        ends.add(reasons)
        assert not info["action_mask"].any()
        with pytest.raises(ResetNeeded, match="complete; call reset"):
            env.step(rules.eos)
    assert {(True, False, False), (False, False, True)} <= ends


def test_the_token_budget_ends_a_prompt(folder):
    env = single(folder, max_tokens=4)
    env.reset()
    a = env.tokenizer.convert_tokens_to_ids("a")
    found = [env.step(a) for _ in range(4)]
    assert [step[2] for step in found] == [False, False, False, True] and found[-1][-1]["prompt"] == "aaaa"


def test_illegal_actions_say_why(folder):
    env = single(folder, words=1)
    with pytest.raises(ResetNeeded, match="not started yet"):
        env.step(0)
    env.reset()
    env.step(env.tokenizer.convert_tokens_to_ids("a"))
    word = env.tokenizer.convert_tokens_to_ids("\u0120a")
    with pytest.raises(ValueError, match="b' a' would begin a word beyond the budget of 1"):
        env.step(word)
    with pytest.raises(ValueError, match=r"no token of 0\.\.319"):
        env.step(320)
    with pytest.raises(TypeError, match="integer action"):
        env.step(0.5)
    assert env.step(env.rules.eos)[2]


def test_bad_arguments(folder):
    for wrong, kind in [({"words": 0}, ValueError), ({"max_tokens": 2.5}, TypeError), ({"model": 3}, TypeError),
                        ({"encoder": None}, TypeError), ({"render_mode": "gif"}, ValueError)]:  # fmt: skip
        for make in (single, vector):
            with pytest.raises(kind, match=f"Expected.*{next(iter(wrong))}"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Gymnasium's own about the render mode
                make(folder, **wrong)
    with pytest.raises(ValueError, match="max_tokens of at most 64"):
        _ = single(folder, max_tokens=65).language_model


def test_making_and_stepping_loads_the_tokenizer_only(folder):
    code = (
        "import sys, gymnasium, edpbrl_gym\n"
        f"env = gymnasium.make('{ID}', model={folder!r})\n"
        f"lanes = gymnasium.make_vec('{ID}', num_envs=2, model={folder!r})\n"
        "env.reset(); env.step(env.unwrapped.rules.eos); lanes.reset(); lanes.step([5, 6])\n"
        "print(sorted({'torch', 'sentence_transformers'} & set(sys.modules)), env.unwrapped.model._language)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] None"


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_vector_steps_are_those_of_single_environments(folder, mode, render_mode):
    own = vector(folder, autoreset_mode=mode, render_mode=render_mode)
    serial = SyncVectorEnv(
        [lambda: gymnasium.make(ID, model=folder, words=WORDS, max_tokens=LIMIT, render_mode=render_mode)] * 4,
        autoreset_mode=own.metadata["autoreset_mode"],
    )
    assert own.observation_space == serial.observation_space and own.action_space == serial.action_space
    assert own.metadata == serial.metadata
    rng = np.random.default_rng(2)
    first, second = own.reset(seed=3), serial.reset(seed=3)
    assert data_equivalence(deepcopy(first), second, exact=True)
    for step in range(40):
        if mode == "disabled" and step and first[2].any():
            mask = first[2]
            first, second = (env.reset(options={"reset_mask": mask.copy()}) for env in (own, serial))
            assert data_equivalence(deepcopy(first), second, exact=True)
        actions = draw(rng, own.action_masks(), own.rules)
        first, second = own.step(actions), serial.step(actions)
        assert data_equivalence(deepcopy(first), second, exact=True)
        if render_mode:
            assert own.render() == tuple(serial.render())


def test_errors_of_the_vector_environment(folder):
    env = vector(folder, autoreset_mode="disabled")
    with pytest.raises(ResetNeeded, match="not started yet"):
        env.step(np.zeros(4, dtype=int))
    with pytest.raises(ResetNeeded, match="first reset must begin all lanes"):
        env.reset(options={"reset_mask": np.array([True, False, False, False])})
    before, _ = env.reset()
    for wrong, message in [(np.zeros(3, dtype=int), "shape"), (np.zeros(4), "integers"), ([5, 5, 400, 5], "lane 2")]:
        with pytest.raises(ValueError, match=message):
            env.step(wrong)
    np.testing.assert_array_equal(env.state.tokens, before)
    env.step([env.rules.eos, 5, 5, 5])
    with pytest.raises(ResetNeeded, match=r"Lanes \[0\] are complete"):
        env.step([5, 5, 5, 5])
    with pytest.raises(ResetNeeded, match=r"Lanes \[0\] are complete"):
        env.append([0], [5])
    with pytest.raises(ValueError, match="one seed for each of 4 lanes, got 2"):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": [True] * 4})


def full_log_probs(env, tokens, temperature=1.0):
    """The policy at a prefix by one full forward, word by word budget with ``bytes.split``."""
    language, rules = env.language_model, env.rules
    with torch.no_grad():
        logits = language.model(input_ids=torch.tensor([[language.start, *tokens]], device=language.device)).logits[
            0, -1
        ]
    chances = torch.softmax(logits.double().cpu() / temperature, dim=0).numpy()
    data = rules.data(tokens)
    over = np.array([len((data + piece).split()) > env.model.words for piece in rules.pieces])
    over[rules.eos] = True
    result = np.where(over, 0.0, chances)
    result[rules.eos] = chances[over].sum()
    return np.log(result, where=result > 0, out=np.full(len(result), -np.inf))


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_next_token_log_probs_with_a_cache_are_those_of_full_forwards(folder, mode):
    """Also after partial resets, and where lanes have different lengths; a complete lane has no next token."""
    env, rng = vector(folder, autoreset_mode=mode), np.random.default_rng(3)
    env.reset()
    for step in range(30):
        if mode == "disabled" and env.state.ended.any():
            env.reset(options={"reset_mask": env.state.ended.copy()})
        if step % 7 == 3:
            env.reset(options={"reset_mask": np.array([False, True, False, True])})
        found = env.next_token_log_probs(0.8)
        for lane in range(4):
            tokens = env.state.tokens[lane, : env.state.steps[lane]].tolist()
            if env.state.ended[lane]:
                assert np.isneginf(found[lane]).all()
                continue
            np.testing.assert_allclose(found[lane], full_log_probs(env, tokens, 0.8), atol=1e-5)
            assert (np.isfinite(found[lane]) == env.action_masks()[lane].astype(bool)).all()
            assert np.exp(found[lane]).sum() == pytest.approx(1.0)
        env.step(draw(rng, env.action_masks(), env.rules))


def test_a_vector_step_feeds_the_new_tokens_only(folder):
    env, fed = vector(folder, lanes=3), []
    env.reset()
    handle = env.language_model.model.register_forward_pre_hook(
        lambda module, args, given: fed.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    try:
        for _ in range(5):
            env.next_token_log_probs()
            env.step([5, 6, 7])
        env.next_token_log_probs()
        env.next_token_probabilities()
        assert fed == [(3, 1)] * 6  # the start token, then one token of each lane; nothing new, nothing fed
        env.reset(options={"reset_mask": np.array([False, True, False])})
        env.next_token_log_probs()
        env.append([0], [9])
        env.next_token_log_probs()
        assert fed[6:] == [(1, 1), (1, 1)]
    finally:
        handle.remove()


def test_the_policy_of_the_environment_has_the_law_of_sampling(folder):
    """The log-probabilities of sampled prompts are those of their tokens as actions, EOS for the stop."""
    env = single(folder)
    samples = sample_prompts(
        env.language_model,
        12,
        words=WORDS,
        max_tokens=LIMIT,
        temperature=0.9,
        generator=torch.Generator().manual_seed(4),
    )
    assert samples.stopped.any()
    for row, length in enumerate(samples.lengths.tolist()):
        env.reset()
        for position, token in enumerate(samples.tokens[row, :length].tolist()):
            expected = float(samples.log_probabilities[row, position])
            assert env.next_token_log_probs(0.9)[token] == pytest.approx(expected, abs=1e-5)
            assert env.next_token_probabilities(0.9)[token] == pytest.approx(np.exp(expected), abs=1e-5)
            _, _, done, _, info = env.step(token)
        assert done and info["prompt"] == samples.texts[row]


def test_features_and_pickle(folder, minilm):
    env = vector(folder)
    env.model.use_encoder(minilm)
    env.reset()
    env.step([5, 6, 7, 8])
    env.next_token_log_probs()
    copy = pickle.loads(pickle.dumps(env))
    observations = env.step([10, 11, 12, 13])[0]
    assert data_equivalence(copy.step([10, 11, 12, 13])[0], observations, exact=True)
    np.testing.assert_allclose(copy.next_token_log_probs(), env.next_token_log_probs(), atol=1e-5)
    texts = env.trajectory_texts(observations)
    np.testing.assert_allclose(env.trajectory_features(observations), minilm.encode(texts), atol=1e-6)
    assert env.trajectory_texts(observations[2]) == [texts[2]]
    for wrong in (observations[:, :3], observations + 400, observations.astype(float)):
        with pytest.raises(ValueError, match=r"integers in 0\.\.320 of shape \(n, L\)"):
            env.trajectory_texts(wrong)
