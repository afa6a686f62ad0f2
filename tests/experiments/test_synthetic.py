"""The synthetic experiment end to end with the real encoder on a small vocabulary: numbers, resume, determinism."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from gymnasium.vector import SyncVectorEnv
from PIL import Image

from edpbrl_gym.agents.random import RandomAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.agents.tabular import TabularAgent
from edpbrl_gym.cli import main
from edpbrl_gym.collection.collect import answer_again, collect, draw_questions, make_prompt_lanes
from edpbrl_gym.experiments.designs import design_episodes
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.experiments.settings import PAPER_USERS, AgentSettings, SyntheticSettings, parse_agents
from edpbrl_gym.experiments.synthetic_report import comparisons, verdict
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.killing import kill_when_two_parts_are_done, part_times
from tests.helpers.lane_environments import ChainEnv
from tests.helpers.small_vocabulary import write_vocabulary

RUNS = 5


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary")


def arguments(words, out, *more: str) -> list[str]:
    small = ["--episodes", "2", "4", "--runs", str(RUNS), "--prompts", "8", "--pairs", "28", "--iterations", "10"]
    return ["reproduce", "synthetic", *small, "--vocabulary", str(words), "--out", str(out), "--jobs", "1", *more]


@pytest.fixture(scope="module")
def finished(words, tmp_path_factory, embedding_cache):
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(arguments(words, out)) == 0
    return out


def test_the_defaults_are_the_papers_numbers():
    settings = SyntheticSettings()
    assert settings.episodes == (10, 30, 50, 70, 90, 110) and settings.runs == 25
    assert settings.num_options == 4 and settings.criterion == "V" and settings.iterations == 100
    assert settings.regularization == settings.estimation_lambda == 100.0
    assert settings.prompts == 1000 and settings.pairs == 5000 and settings.feedback == "truncated"
    assert list(settings.users) == ["sunny", "medieval", "technological"] and settings.users == PAPER_USERS
    assert settings.agents == ("frank_wolfe", "random") and set(settings.modes) == {"argmax", "sampled"}


def test_every_row_states_user_mode_scale_and_agent(finished):
    table = read_results(finished).table
    assert len(table) == RUNS * 2 * 2 * 3 * 3  # agents x T x users x ways of answering
    assert set(table["user"]) == set(PAPER_USERS) and set(table["agent"]) == {"ED-PBRL", "Random"}
    ways = set(table[["mode", "scale"]].itertuples(index=False, name=None))
    assert ways == {("argmax", 1.0), ("sampled", 1.0), ("sampled", 20.0)}
    assert (table["questions"] == 3 * table["episodes"]).all() and table["converged"].all()
    assert table["cosine_error"].between(0, 2).all() and table["preference_error"].between(0, 1).all()
    assert (table.loc[table["mode"] == "argmax", "best_chosen"] == 1.0).all()
    noisy = table[(table["mode"] == "sampled") & (table["scale"] == 1.0)]["best_chosen"].mean()
    sharp = table[(table["mode"] == "sampled") & (table["scale"] == 20.0)]["best_chosen"].mean()
    assert 0.2 < noisy < 0.4 < sharp < 1.0
    assert set(table[table["agent"] == "Random"]["planned"]) == {4}  # Random's T = 2 are the first two of its four
    designed = table[table["agent"] == "ED-PBRL"]
    assert (designed["planned"] == designed["episodes"]).all()


def test_the_run_folder_says_what_made_it(finished):
    results = read_results(finished)
    known = results.provenance
    assert known["encoder"] == "minilm" and len(results.config["encoder_fingerprint"]) == 64
    assert len(results.config["vocabulary_fingerprint"]) == 64 and known["finished"] >= known["sessions"][0]["begun"]
    assert [design["episodes"] for design in known["designs"]] == [2, 4]
    assert all("prior-dominated" in " ".join(design["warnings"]) for design in known["designs"])
    report = (finished / "REPORT.md").read_text()
    for text in ("prior-dominated", "sampled, scale 20", "Errors at the largest T", results.config["users"]["sunny"]):
        assert text in report


def test_the_figures_exist_and_are_not_blank(finished):
    names = {path.name for path in (finished / "figures").iterdir()}
    stems = ("errors-argmax", "errors-sampled-1", "errors-sampled-20")
    assert names == {f"{stem}{suffix}" for stem in stems for suffix in (".png", ".pdf")}
    for stem in stems:
        image = Image.open(finished / "figures" / f"{stem}.png").convert("L")
        assert image.height > 500 and np.count_nonzero(image.histogram()) > 50
        assert (finished / "figures" / f"{stem}.pdf").read_bytes().startswith(b"%PDF")


def test_the_report_is_rebuilt_from_the_parquet_alone(finished, tmp_path):
    (tmp_path / "results.parquet").write_bytes((finished / "results.parquet").read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    for path in [finished / "REPORT.md", *(finished / "figures").iterdir()]:
        assert (tmp_path / path.relative_to(finished)).read_bytes() == path.read_bytes(), path.name


def test_the_same_seed_gives_the_same_results_in_any_number_of_processes(finished, words, tmp_path):
    before = read_results(finished).table
    assert main(arguments(words, tmp_path / "again", "--jobs", "2")) == 0
    pandas.testing.assert_frame_equal(read_results(tmp_path / "again").table, before, rtol=0, atol=1e-9)
    assert main(arguments(words, tmp_path / "other", "--seed", "1", "--runs", "2")) == 0
    other = read_results(tmp_path / "other").table
    assert (other["cosine_error"].to_numpy() != before["cosine_error"].to_numpy()[: len(other)]).mean() > 0.9


def test_a_killed_run_goes_on_and_ends_with_the_same_table(finished, words, tmp_path):
    out = tmp_path / "killed"
    done = kill_when_two_parts_are_done(arguments(words, out), out, "parts/run-*.parquet")
    assert 2 <= len(done) < RUNS and not (out / "results.parquet").exists()
    assert main(arguments(words, out)) == 0
    after = part_times(out, "parts/run-*.parquet")
    assert len(after) == RUNS and {name: after[name] for name in done} == done
    whole = read_results(finished)
    pandas.testing.assert_frame_equal(read_results(out).table, whole.table, rtol=0, atol=1e-9)
    assert len(read_results(out).provenance["sessions"]) == 2
    before = {path: path.stat().st_mtime_ns for path in (out / "designs").rglob("*")}
    assert main(arguments(words, out)) == 0  # nothing is left to do
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("parts/run-*.parquet")} == after
    assert {path: path.stat().st_mtime_ns for path in (out / "designs").rglob("*")} == before


def test_another_setting_in_the_same_folder_is_refused(finished, words, capsys):
    assert main(arguments(words, finished, "--regularization", "1")) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "regularization was 100.0, now 1.0" in message and "another --out" in message


def test_own_agents_options_and_users_are_compared(words, tmp_path):
    agents = [
        "tests.experiments.test_synthetic:FirstTokens,label=First",
        "frank_wolfe,criterion=D,regularization=1",
        "random",
    ]
    more = ["--agents", *agents, "--users", "cosy=a cosy winter evening", "--modes", "argmax", "--runs", "2"]
    out = tmp_path / "own"
    assert main(arguments(words, out, *more, "--design-for", "largest", "--feedback", "state")) == 0
    table = read_results(out).table
    assert list(dict.fromkeys(table["agent"])) == ["First", "ED-PBRL (D, lambda 1)", "Random"]
    assert set(table["user"]) == {"cosy"} and set(table["planned"]) == {4}
    assert (table[table["agent"] == "First"]["cosine_error"] == 1.0).all()  # K equal options teach nothing
    assert [design["criterion"] for design in read_results(out).provenance["designs"]] == ["D"]


def test_complete_prompts_are_asked_about_once_an_episode(words, tmp_path):
    out = tmp_path / "complete"
    more = ["--agents", "random", "--users", "cosy=a cosy winter evening", "--modes", "argmax", "--runs", "1"]
    assert main(arguments(words, out, *more, "--feedback", "prompt")) == 0
    table = read_results(out).table
    assert (table["questions"] == table["episodes"]).all() and set(table["episodes"]) == {2, 4}
    assert (out / "REPORT.md").is_file()


class FirstTokens(RandomAgent):
    """Always shows the first token in all lanes."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return super().predict(observation, state, episode_start, deterministic=True)


class Adaptive(RandomAgent):
    def observe(self, comparisons):
        self.seen = comparisons


def test_agents_that_cannot_be_compared_here_are_refused(words, tmp_path, capsys):
    here = "tests.experiments.test_synthetic"
    for agent, status, said in (
        (f"{here}:Adaptive", 1, "overrides observe"),
        (f"{here}:Nobody", 1, "has no 'Nobody'"),
        ("franc_wolfe", 2, "Expected an agent among "),  # a wrong argument, told before any package is loaded
        ("random,colour=red", 1, "colour"),
    ):
        assert main(arguments(words, tmp_path / agent[-8:], "--agents", agent, "random")) == status
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("edpbrl: error: ") and said in error


def test_agent_settings_read_their_options():
    agent = AgentSettings.parse("frank_wolfe, criterion=D, regularization=1, variant=pairwise")
    assert agent.options == {"criterion": "D", "regularization": 1, "variant": "pairwise"}
    assert agent.label == "ED-PBRL (D, lambda 1, variant pairwise)"
    assert AgentSettings.parse("a.b:Mine").label == "Mine"
    labels = [agent.label for agent in parse_agents(("frank_wolfe", "newton", "random"))]
    assert labels == ["ED-PBRL, frank_wolfe", "ED-PBRL, newton", "Random"]
    with pytest.raises(ValueError, match="its own label"):
        parse_agents(("newton,label=A", "random,label=A"))
    with pytest.raises(ValueError, match="option=value"):
        AgentSettings.parse("random,fast")


def test_random_and_one_design_use_prefixes_of_one_sequence():
    settings = SyntheticSettings(episodes=(30, 10))
    designed, random = settings.parsed_agents
    assert design_episodes(settings, designed) == ((10, (10,)), (30, (30,)))
    assert design_episodes(settings, random) == ((30, (10, 30)),)
    assert design_episodes(SyntheticSettings(episodes=(30, 10), design_for="largest"), designed) == ((30, (10, 30)),)


def invented(gap: float, runs: int = 6) -> pandas.DataFrame:
    """A table in which agent A is worse than B by ``gap`` on user u, and equal up to noise on user v."""
    rng = np.random.default_rng(0)
    rows = []
    for run in range(runs):
        for agent, extra in (("A", gap), ("B", 0.0)):
            for user in ("u", "v"):
                for episodes in (1, 2):
                    row = {"run": run, "agent": agent, "user": user, "mode": "argmax", "scale": 1.0}
                    error = 0.5 + (extra if user == "u" else 0.0) + 0.01 * rng.normal()
                    rows.append(row | {"episodes": episodes, "cosine_error": error, "preference_error": error})
    return pandas.DataFrame(rows)


def test_differences_are_paired_by_run_with_their_standard_error():
    table = invented(0.2)
    config = {"agents": ["x:A", "x:B"]}
    found = [d for d in comparisons(table, config) if (d.user, d.metric, d.episodes) == ("u", "cosine_error", 2)]
    wide = table[(table["user"] == "u") & (table["episodes"] == 2)].pivot(
        index="run", columns="agent", values="cosine_error"
    )
    gaps = (wide["A"] - wide["B"]).to_numpy()
    assert len(found) == 1 and found[0].difference.mean == pytest.approx(gaps.mean())
    assert found[0].difference.error == pytest.approx(gaps.std(ddof=1) / np.sqrt(6)) and found[0].winner == "B"
    assert found[0].difference.below == 0 and found[0].difference.runs == 6


@pytest.mark.parametrize(("gap", "head"), [(0.2, "B won"), (-0.2, "A won"), (0.0, "No clear winner")])
def test_the_verdict_names_whoever_wins(gap, head):
    sentences = verdict(invented(gap), {"agents": ["x:A", "x:B"]})
    assert sentences[-1].startswith(head)
    assert any("too close to call for" in sentence and "v (" in sentence for sentence in sentences)
    assert verdict(invented(gap, runs=1), {"agents": ["x:A", "x:B"]})[0].startswith("One run only")
    assert verdict(invented(gap), {"agents": ["x:A"]})[0].startswith("One agent only")


def test_collect_in_batches_and_at_once_ask_full_groups(words, minilm):
    lanes = make_prompt_lanes(2 * 3, vocabulary=str(words))
    lanes.unwrapped.model.use_encoder(MemoEncoder(minilm))
    user = SyntheticUser.from_text("a bright morning", minilm)
    agent = make_agent("random", lanes, num_options=3, episodes=5, seed=0)
    found = collect(lanes, agent, user, episodes=5)
    assert found.features.shape == (15, 3, 384)
    assert sorted(zip(found.episode.tolist(), found.step.tolist(), strict=True)) == [
        (e, h) for e in range(5) for h in range(3)
    ]
    utilities = found.features.astype(float) @ user.theta
    assert np.allclose(utilities[np.arange(15), found.choice], utilities.max(axis=1), atol=1e-12)
    assert found.texts is not None
    assert np.allclose(minilm.encode(found.texts[7]), found.features[7], atol=1e-5)
    opposite = SyntheticUser(-user.theta, name="other")
    again = answer_again(found, opposite)
    worst = utilities[np.arange(15), again.choice]
    assert np.allclose(worst, utilities.min(axis=1), atol=1e-12) and again.who == "other"  # two lanes may show the same
    assert again.metadata["oracle"]["oracle"] == "other"
    one = make_agent("random", lanes, num_options=3, episodes=5, seed=1)
    at_once = collect("edpbrl/PromptConstruction-v0", one, user, episodes=4, env_arguments={"vocabulary": str(words)})
    assert len(at_once) == 12 and set(at_once.episode) == {0, 1, 2, 3}
    with pytest.raises(ValueError, match="made environment"):
        collect(lanes, one, user, episodes=1, env_arguments={"encoder": "minilm"})


def test_collect_tells_a_tabular_agent_where_episodes_begin_whatever_the_batches():
    lanes = SyncVectorEnv([ChainEnv for _ in range(2 * 2)])
    mdp = lanes.envs[0].unwrapped.mdp
    steps: list[tuple[int, int]] = []  # where lane 0 is, and where the agent thinks that it is

    class Spy(TabularAgent):
        def _steps(self, observations, state, episode_start):
            found = super()._steps(observations, state, episode_start)
            steps.append((lanes.envs[0].unwrapped.steps, int(found[0])))
            return found

    policies = np.stack([mdp.uniform_policy()] * 2)
    user = SyntheticUser(np.ones(np.asarray(lanes.envs[0].unwrapped.features).shape[1]))
    found = collect(lanes, Spy(lanes, policies=policies, num_options=2, episodes=5), user, episodes=5, feedback="state")
    assert len(found) == 5 * mdp.horizon and set(found.episode) == set(range(5))
    acted = [pair for pair in steps if pair[0] < mdp.horizon]  # the others only reset
    assert acted == [(step, step) for step in range(mdp.horizon)] * 3


def test_drawn_questions_are_prefixes_of_each_other(words):
    env = make_prompt_lanes(2, vocabulary=str(words))
    agent = make_agent("random", env, num_options=2, episodes=3, seed=0)
    drawn = draw_questions("edpbrl/PromptConstruction-v0", agent, episodes=3, env_arguments={"vocabulary": str(words)})
    found = drawn.questions
    assert [question[:2] for question in found] == [(e, h) for e in range(3) for h in range(3)]
    for (_, step, before), (_, following, after) in zip(found, found[1:], strict=False):
        if following == step + 1:
            assert all(late.startswith(f"{early}, ") for early, late in zip(before, after, strict=True))


def test_the_memo_encodes_each_text_once(minilm):
    calls: list[list[str]] = []

    class Counting:
        name, dimension, fingerprint = minilm.name, minilm.dimension, minilm.fingerprint

        def encode(self, texts, *, progress=False):
            calls.append(list(texts))
            return minilm.encode(texts)

    memo = MemoEncoder(Counting(), texts=["known"], rows=minilm.encode(["known"]))
    rows = memo.encode(["b", "a", "b", "known"])
    assert calls == [["b", "a"]] and (rows == minilm.encode(["b", "a", "b", "known"])).all()
    assert memo.encode([]).shape == (0, 384) and (memo.encode(["a"]) == rows[1]).all() and len(calls) == 1
