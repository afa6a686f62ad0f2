"""The agent whose policies are language models: learning, playing, questions, files."""

import gymnasium
import numpy as np
import pytest

from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.collection.collect import collect
from edpbrl_gym.envs.wrappers import PreferenceQuery, WordSteps
from edpbrl_gym.language.words import word_prefixes
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.lane_environments import ChainEnv
from tests.helpers.tiny_language_model import write_tiny_model
from tests.helpers.tiny_reinforce import HashEncoder

pytestmark = pytest.mark.needs("text", "language")

ID = "edpbrl/TextGeneration-v0"
TRAINING = {"iterations": 2, "meta_samples": 2, "evaluation_samples": 2, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def lanes(folder, number=4, **options):
    env = gymnasium.make_vec(ID, num_envs=number, model=folder, words=3, max_tokens=8, **options)
    env.unwrapped.model.use_encoder(HashEncoder())
    return env


def made(env, **options):
    arguments = dict(num_options=2, episodes=2, training=TRAINING, noise=0.1)
    return make_agent("reinforce", env, **{**arguments, **options})


@pytest.fixture(scope="module")
def learnt(folder):
    return made(lanes(folder)).learn()


@pytest.fixture(scope="module")
def saved(learnt, tmp_path_factory):
    target = tmp_path_factory.mktemp("saved")
    learnt.save(target)
    return target


def play(agent, env, steps=8, **options):
    observation, info = env.reset(seed=0)
    texts, done = [None] * env.num_envs, np.zeros(env.num_envs, dtype=bool)
    for _ in range(steps):
        action, _ = agent.predict(observation, **options)
        assert action.shape == (env.num_envs,)
        action = np.where(done, env.unwrapped.rules.eos, action)
        observation, _, terminated, _, info = env.step(action)  # illegal actions would raise
        for lane in np.flatnonzero(terminated & ~done):
            texts[lane] = info["prompt"][lane]
        done |= terminated
        if done.all():
            break
    assert done.all()
    return texts


def test_learning_changes_the_agents_models_only(folder):
    import torch

    env = lanes(folder)
    before = {name: value.clone() for name, value in env.unwrapped.language_model.model.state_dict().items()}
    agent = made(env)
    assert agent.learn() is agent and isinstance(agent, Agent)
    assert len(agent.history.iterations) == 2 and agent.training.words == 3 and agent.training.episodes == 2
    after = env.unwrapped.language_model.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("deterministic", [False, True])
def test_it_plays_legal_tokens_to_the_end(folder, learnt, deterministic):
    texts = play(learnt, lanes(folder), deterministic=deterministic)
    assert all(len(text.split()) <= 3 for text in texts)
    if deterministic:  # lanes 0 and 2 are one policy
        assert texts[0] == texts[2] and texts[1] == texts[3]


def test_its_tokens_have_the_probabilities_of_the_models(folder, learnt):
    """Frequencies of the first action of many lanes against the softmax of the model, the stop merged into EOS."""
    import torch

    env = lanes(folder, number=4000)
    observation, _ = env.reset(seed=0)
    actions, _ = learnt.predict(observation)
    for q in range(2):
        with learnt.policies.policy(q) as language, torch.no_grad():
            start = torch.tensor([[language.start]])
            expected = language.model(input_ids=start).logits[0, -1].double().softmax(0).numpy()
        own = actions[q::2]
        found = np.bincount(own, minlength=len(expected)) / len(own)
        top = np.argsort(-expected)[:20]
        error = np.sqrt(expected[top] * (1 - expected[top]) / len(own))
        assert (np.abs(found[top] - expected[top]) < 4.5 * error).all()
    first, second = (np.bincount(actions[q::2], minlength=330) for q in range(2))
    assert np.abs(first - second).sum() > 0.2 * len(actions) / 2  # the policies differ


def test_a_cached_step_is_a_fresh_one(folder, learnt):
    """The greedy token after each prefix is that of a model fed the whole prefix."""
    import torch

    env = lanes(folder, number=2)
    observation, _ = env.reset(seed=0)
    rules = env.unwrapped.rules
    for _ in range(4):
        action, _ = learnt.predict(observation, deterministic=True)
        for lane in range(2):
            tokens = [int(token) for token in observation[lane] if token != rules.size]
            with learnt.policies.policy(lane) as language, torch.no_grad():
                scores = language.model(input_ids=torch.tensor([[language.start, *tokens]])).logits[0, -1].double()
            stop = torch.from_numpy(rules.stop_mask(*rules.state(tokens), 3).copy())
            merged = scores.masked_fill(stop, -torch.inf)
            merged[rules.eos] = scores[stop].logsumexp(0)
            assert action[lane] == int(merged.argmax())
        if (action == rules.eos).any():
            break
        observation, *_ = env.step(action)


def test_questions_of_an_environment_by_the_recipe(folder, learnt, saved):
    """``collect`` over WordSteps: what the agent's models write word by word, at the temperature they learnt at."""
    agent = type(learnt).load(saved, lanes(folder))
    venv, user = lanes(folder, number=6), SyntheticUser(np.ones(6), mode="argmax")
    words = WordSteps(venv, agent.policies.language_models(), temperature=agent.training.temperature)
    assert agent.play_on(words) is agent
    actions, state = agent.predict(words.reset(seed=1)[0])
    np.testing.assert_array_equal(actions, [0, 1, 0, 1, 0, 1])
    assert state is None
    found = collect(words, agent, user, episodes=5, seed=3)
    assert found.features.shape == (15, 2, 6) and np.unique(found.episode, return_counts=True)[1].tolist() == [3] * 5
    for episode in range(5):
        for option in range(2):
            prefixes = [found.texts[i][option] for i in np.flatnonzero(found.episode == episode)]
            assert prefixes == word_prefixes(prefixes[-1], 3)
    rows = HashEncoder().encode([text for question in found.texts for text in question])
    np.testing.assert_array_equal(found.features, rows.reshape(15, 2, 6))


def test_lanes_of_tokens_are_not_compared(folder, learnt, saved):
    agent = type(learnt).load(saved, lanes(folder))
    user = SyntheticUser(np.ones(6))
    asked = PreferenceQuery(lanes(folder), lanes=2, oracle=user)
    for refused in (lambda: agent.play_on(asked), lambda: made(asked)):
        with pytest.raises(ValueError, match="whole words under PreferenceQuery.*words = WordSteps.*play_on"):
            refused()
    with pytest.raises(ValueError, match="WordSteps with num_options = 2 models, got 1"):
        agent.play_on(WordSteps(lanes(folder)))
    other = gymnasium.make_vec(ID, num_envs=4, model=folder, words=4, max_tokens=8)
    with pytest.raises(ValueError, match="of 3 words and at most 8 tokens"):
        agent.play_on(other)
    agent.play_on(PreferenceQuery(WordSteps(lanes(folder), agent.policies.language_models()), lanes=2, oracle=user))


@pytest.mark.parametrize("kind", ["adapters", "copies"])
def test_saving_and_loading(folder, tmp_path, kind):
    env = lanes(folder)
    agent = made(env, kind=kind, rank=4, seed=3).learn()
    agent.save(tmp_path)
    found = type(agent).load(tmp_path, lanes(folder))
    assert found.training == agent.training and found.history == agent.history and found.kind == kind
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(found.predict(observation)[0], agent.predict(observation)[0])
    made(env).save(tmp_path / "untrained")
    with pytest.raises(RuntimeError, match=r"call learn\(\)"):
        type(agent).load(tmp_path / "untrained", env).predict(observation)


def test_training_goes_on_in_its_folder(folder, tmp_path):
    agent = made(lanes(folder), folder=tmp_path).learn()
    again = made(lanes(folder), folder=tmp_path, training={**TRAINING, "iterations": 3}).learn()
    assert [step.objective for step in again.history.iterations[:2]] == [
        step.objective for step in agent.history.iterations
    ]
    assert len(again.history.iterations) == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"criterion": "V"}, ValueError, "optimises no other, as one of 'D', got 'V'"),
        ({"training": {"words": 3}}, TypeError, "training with fields among iterations, .*got 'words'"),
        ({"training": {"speed": 3}}, TypeError, "got 'speed'"),
        ({"training": {"learning_rate": -1}}, ValueError, "learning_rate > 0"),
        ({"kind": "heads"}, ValueError, "kind of policies"),
        ({"rank": 0}, ValueError, "rank >= 1"),
        ({"speed": 1}, TypeError, "its options: folder, kind, noise, rank, training"),
    ],
)
def test_wrong_arguments(folder, options, error, message):
    with pytest.raises(error, match=message):
        made(lanes(folder), **options)


def test_other_environments(folder, learnt):
    with pytest.raises(TypeError, match=r"\.language_model; ChainEnv has not"):
        make_agent("reinforce", ChainEnv(), num_options=2, episodes=2, criterion="D")
    with pytest.raises(ValueError, match=r"token ids of shape \(n, 8\)"):
        learnt.predict(np.zeros((4, 5), dtype=np.int64))
