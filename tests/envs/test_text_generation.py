"""Text generation token by token, single and vector, and word by word with WordSteps."""

import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import data_equivalence

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.envs.wrappers import PreferenceQuery, WordSteps
from edpbrl_gym.language.model import SHIPPED_NAME, load_language_model
from edpbrl_gym.language.sampling import sample_prompts, word_prefixes
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.tiny_language_model import write_tiny_model

ID = "edpbrl/TextGeneration-v0"
WORDS, LIMIT = 3, 12


def single(gpt2, **arguments):
    return gymnasium.make(ID, **{"model": gpt2, "words": WORDS, "max_tokens": LIMIT, **arguments}).unwrapped


def vector(gpt2, lanes=4, **arguments):
    return gymnasium.make_vec(ID, num_envs=lanes, **{"model": gpt2, "words": WORDS, "max_tokens": LIMIT, **arguments})


def draw(rng, masks, rules=None):
    """Legal actions; with the rules half of them begin with white space or end the prompt."""
    chosen = []
    for mask in np.asarray(masks, dtype=bool):
        if rules is not None and rng.random() < 0.5 and mask.any():
            mask = mask & ~rules.continues  # EOS among them
        chosen.append(rng.choice(np.flatnonzero(mask)) if mask.any() else 0)
    return np.array(chosen)


def test_episodes_follow_the_text(gpt2):
    """Masks, ends and infos against the bytes of the text and ``bytes.split``."""
    env, rng, ends = single(gpt2, max_tokens=8), np.random.default_rng(1000), set()
    rules = env.rules
    for _ in range(30):
        observation, info = env.reset()
        data, chosen, done = b"", [], False
        assert observation.tolist() == [rules.size] * 8 and info["prompt"] == "" and info["step"] == 0
        while not done:
            for token in rng.integers(0, rules.size, size=20).tolist():
                fits = rules.allowed[token] and len((data + rules.pieces[token]).split()) <= WORDS
                assert info["action_mask"][token] == (fits or token == rules.eos)
            np.testing.assert_array_equal(info["action_mask"], env.action_masks())
            action = draw(rng, info["action_mask"][None], rules)[0]
            observation, reward, done, truncated, info = env.step(action)
            chosen.append(int(action))
            data += rules.pieces[action]
            assert observation.tolist() == chosen + [rules.size] * (8 - len(chosen))
            assert (reward, truncated, info["step"]) == (0.0, False, len(chosen))
            assert info["prompt"] == env.tokenizer.decode(chosen, skip_special_tokens=True).strip(" \t\n\v\f\r")
            closed = done or not data or data[-1:].isspace()
            assert info["word"] == len(data.split()) - (not closed)
            full = len(data.split()) == WORDS and data[-1:].isspace()
            reasons = (action == rules.eos, len(chosen) == 8, full)
            assert done == any(reasons)
        ends.add(reasons)
        assert not info["action_mask"].any()
        with pytest.raises(ResetNeeded, match="complete; call reset"):
            env.step(rules.eos)
    assert {(True, False, False), (False, True, False), (False, False, True)} <= ends


def test_illegal_actions_say_why(gpt2):
    env = single(gpt2, words=1)
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


def test_bad_arguments(gpt2):
    for wrong, kind in [({"words": 0}, ValueError), ({"max_tokens": 2.5}, TypeError), ({"model": 3}, TypeError),
                        ({"encoder": None}, TypeError), ({"render_mode": "gif"}, ValueError)]:  # fmt: skip
        for make in (single, vector):
            with pytest.raises(kind, match=f"Expected.*{next(iter(wrong))}"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Gymnasium's own about the render mode
                make(gpt2, **wrong)
    with pytest.raises(ValueError, match="max_tokens of at most 64"):
        _ = single(gpt2, max_tokens=65).language_model


def test_making_and_stepping_loads_the_tokenizer_only(gpt2):
    code = (
        "import sys, gymnasium, edpbrl_gym\n"
        f"env = gymnasium.make('{ID}', model={gpt2!r})\n"
        f"lanes = gymnasium.make_vec('{ID}', num_envs=2, model={gpt2!r})\n"
        "env.reset(); env.step(env.unwrapped.rules.eos); lanes.reset(); lanes.step([5, 6])\n"
        "print(sorted({'torch', 'sentence_transformers'} & set(sys.modules)))\n"
        "print(vars(env.unwrapped.model).get('language_model'))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["[]", "None"]


def test_errors_of_the_vector_environment(gpt2):
    env = vector(gpt2, autoreset_mode="disabled")
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
    given = torch.tensor([[language.start, *tokens]], device=language.device)
    with torch.no_grad():
        logits = language.model(input_ids=given).logits[0, -1]
    chances = torch.softmax(logits.double().cpu() / temperature, dim=0).numpy()
    data = rules.data(tokens)
    over = np.array([len((data + piece).split()) > env.model.words for piece in rules.pieces])
    over[rules.eos] = True
    result = np.where(over, 0.0, chances)
    result[rules.eos] = chances[over].sum()
    return np.log(result, where=result > 0, out=np.full(len(result), -np.inf))


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_next_token_log_probs_with_a_cache_are_those_of_full_forwards(gpt2, mode):
    """Also after partial resets, and where lanes have different lengths; a complete lane has no next token."""
    env, rng = vector(gpt2, autoreset_mode=mode), np.random.default_rng(3)
    env.reset()
    for step in range(16):
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


def test_the_policy_of_the_environment_has_the_law_of_sampling(gpt2):
    """The log-probabilities of sampled prompts are those of their tokens as actions, EOS for the stop."""
    env = single(gpt2)
    limits = {"words": WORDS, "max_tokens": LIMIT, "temperature": 0.9}
    samples = sample_prompts(env.language_model, 12, **limits, generator=torch.Generator().manual_seed(4))
    assert samples.stopped.any()
    for row, length in enumerate(samples.lengths.tolist()):
        env.reset()
        for position, token in enumerate(samples.tokens[row, :length].tolist()):
            expected = float(samples.log_probabilities[row, position])
            assert env.next_token_log_probs(0.9)[token] == pytest.approx(expected, abs=1e-5)
            assert env.next_token_probabilities(0.9)[token] == pytest.approx(np.exp(expected), abs=1e-5)
            _, _, done, _, info = env.step(token)
        assert done and info["prompt"] == samples.texts[row]


def test_features_and_pickle(gpt2, minilm):
    env = vector(gpt2)
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


def test_the_environment_works_on_a_fresh_machine(tmp_path, monkeypatch):
    """With the model that ships, which writes in the words of the vocabulary."""
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    known = {word.strip(",") for token in load_vocabulary().all_tokens for word in token.split()}
    env = gymnasium.make(ID)
    rng, written = np.random.default_rng(0), []
    for episode in range(6):
        _, info = env.reset(seed=episode)
        done = False
        while not done:
            chances = env.unwrapped.next_token_probabilities()
            _, _, done, _, info = env.step(rng.choice(len(chances), p=chances))
        written += [word.strip(",") for word in info["prompt"].split()]
    assert env.unwrapped.language_model.name == SHIPPED_NAME and "model" not in (env.spec.kwargs or {})
    assert np.mean([word in known for word in written]) > 0.8


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Two more policies with the same tokens and other weights."""
    folders = [write_tiny_model(tmp_path_factory.mktemp("other"), seed=seed, spread=2.0) for seed in (1, 2)]
    return [load_language_model(place) for place in folders]


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
def test_word_steps_equal_the_plain_loop(gpt2, others, limit):
    """Every lane with a policy of its own for every word."""
    env = vector(gpt2, lanes=12, max_tokens=limit)
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


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_questions_word_by_word(gpt2, others, minilm, mode):
    """H questions an episode; their features are the encoder's embeddings of the truncated prompts."""
    groups, lanes = 2, 3
    env = vector(gpt2, lanes=groups * lanes, autoreset_mode=mode)
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


def test_groups_reset_apart(gpt2):
    env = vector(gpt2, lanes=4, autoreset_mode="disabled")
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


def test_errors_of_word_steps(gpt2, others, tmp_path):
    env = vector(gpt2)
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
