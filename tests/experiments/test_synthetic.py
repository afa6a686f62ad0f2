"""The synthetic experiment end to end with the real encoder on a small vocabulary: numbers, resume, determinism."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.agents.tabular import RandomAgent
from edpbrl_gym.cli import main
from edpbrl_gym.collection.collect import answer_again, collect, make_prompt_lanes
from edpbrl_gym.experiments.runs import Results, read_results
from edpbrl_gym.experiments.settings import PAPER_USERS, AgentSettings, SyntheticSettings, parse_agents
from edpbrl_gym.experiments.synthetic_report import errors_table, verdict
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.oracles import SyntheticUser
from tests.helpers.killing import kill_when_two_parts_are_done, part_times

RUNS = 4


def arguments(words, out, *more: str) -> list[str]:
    small = ["--episodes", "2", "4", "--runs", str(RUNS), "--prompts", "8", "--pairs", "28", "--iterations", "10"]
    return ["reproduce", "synthetic", *small, "--vocabulary", words, "--out", str(out), "--jobs", "1", *more]


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
    for text in ("prior-dominated", "sampled, scale 20", "Errors of the estimated taste", PAPER_USERS["sunny"]):
        assert text in report


def test_the_report_is_rebuilt_from_the_parquet_alone(finished, tmp_path):
    (tmp_path / "results.parquet").write_bytes((finished / "results.parquet").read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    for path in [finished / "REPORT.md", *(finished / "figures").iterdir()]:
        assert (tmp_path / path.relative_to(finished)).read_bytes() == path.read_bytes(), path.name


def test_the_same_seed_gives_the_same_results_in_any_number_of_processes(finished, words, tmp_path):
    before = read_results(finished).table
    assert main(arguments(words, tmp_path / "again", "--jobs", "2")) == 0
    pandas.testing.assert_frame_equal(read_results(tmp_path / "again").table, before, rtol=0, atol=1e-9)
    assert main(arguments(words, tmp_path / "other", "--seed", "1", "--runs", "1")) == 0
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


def test_own_agents_options_and_users_are_compared(words, tmp_path):
    first = "tests.experiments.test_synthetic:FirstTokens,label=First"
    more = [
        "--agents",
        first,
        "frank_wolfe,criterion=D,regularization=1",
        "random",
        "--users",
        "cosy=a cosy winter evening",
        "--modes",
        "argmax",
        "--runs",
        "2",
    ]
    out = tmp_path / "own"
    assert main(arguments(words, out, *more, "--design-for", "largest", "--feedback", "state")) == 0
    table = read_results(out).table
    assert list(dict.fromkeys(table["agent"])) == ["First", "ED-PBRL (D, lambda 1)", "Random"]
    assert set(table["user"]) == {"cosy"} and set(table["planned"]) == {4}
    assert (table[table["agent"] == "First"]["cosine_error"] == 1.0).all()  # K equal options teach nothing
    assert [design["criterion"] for design in read_results(out).provenance["designs"]] == ["D"]


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
        ("franc_wolfe", 2, "did you mean 'frank_wolfe'"),  # a wrong argument, told before any package is loaded
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
    labels = [agent.label for agent in parse_agents(("frank_wolfe", "newton,label=Newton", "random"))]
    assert labels == ["ED-PBRL", "Newton", "Random"]
    with pytest.raises(ValueError, match="its own label"):
        parse_agents(("frank_wolfe", "newton"))
    with pytest.raises(ValueError, match="option=value"):
        AgentSettings.parse("random,fast")


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
    results = Results(table, kind="synthetic", config={"agents": ["x:A", "x:B"]}, provenance={})
    (row,) = [row for row in errors_table(results).rows if row[:4] == ("u", "argmax", "cosine error", "2")]
    cell = table[(table["user"] == "u") & (table["episodes"] == 2)]
    wide = cell.pivot(index="run", columns="agent", values="cosine_error")
    gaps = (wide["A"] - wide["B"]).to_numpy()
    assert row[-1] == f"{gaps.mean():+.3f} ± {gaps.std(ddof=1) / np.sqrt(6):.3f}"
    assert row[4] == f"{wide['A'].mean():.3f} ± {wide['A'].std(ddof=1) / np.sqrt(6):.3f}"


@pytest.mark.parametrize(("gap", "head"), [(0.2, "B won"), (-0.2, "A won"), (0.0, "No clear winner")])
def test_the_verdict_names_whoever_wins(gap, head):
    sentences = verdict(invented(gap), {"agents": ["x:A", "x:B"]})
    assert sentences[-1].startswith(head)
    assert "2 were too close to call over 6 runs" in sentences[-1] or not gap
    assert verdict(invented(gap, runs=1), {"agents": ["x:A", "x:B"]})[0].startswith("One run only")
    assert verdict(invented(gap), {"agents": ["x:A"]})[0].startswith("One agent only")


def test_collect_asks_full_groups_and_another_user_answers_again(words, minilm):
    lanes = make_prompt_lanes(2 * 3, vocabulary=words)
    lanes.unwrapped.model.use_encoder(MemoEncoder(minilm))
    user = SyntheticUser.from_text("a bright morning", minilm)
    agent = make_agent("random", lanes, num_options=3, episodes=5, seed=0)
    found = collect(lanes, agent, user, episodes=5)
    assert sorted(zip(found.episode.tolist(), found.step.tolist(), strict=True)) == [
        (e, h) for e in range(5) for h in range(3)
    ]
    again = answer_again(found, SyntheticUser(-user.theta, name="other"))
    assert again.who == again.metadata["oracle"]["oracle"] == "other"
    utilities = found.features.astype(float) @ user.theta
    for one, best in ((found, utilities.max(axis=1)), (again, utilities.min(axis=1))):
        np.testing.assert_allclose(utilities[np.arange(15), one.choice], best, atol=1e-12)
