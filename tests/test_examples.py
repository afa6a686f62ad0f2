"""Every example runs, and shows what it says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys

import pytest

from tests.helpers.examples import EXAMPLES, load
from tests.helpers.extras import skip_without

RUNS = {
    "random_rollout.py": ["--seed", "3"],
    "custom_agent.py": ["--episodes", "6", "--tokens-per-step", "10"],
    "plug_in_environment.py": ["--episodes", "10"],
    "maskable_ppo.py": ["--total-timesteps", "3000"],
    "personalize_policy.py": ["--total-timesteps", "1152", "--tokens-per-step", "4", "--episodes", "10"],
    "text_generation.py": ["--episodes", "4", "--words", "3"],
    "local_judge.py": ["--demo", "--seed", "1"],
    "human_oracle.py": ["--episodes", "1"],
    "study.py": ["--people", "3", "--questions", "3", "--port", "8766"],
    "diffusion_taste.py": ["--answers", "6", "--blocks", "2", "--steps", "2", "--pool-noises", "2", "--samples", "8"],
    "diffusion_reinforce.py": [
        *("--conditions", "1", "7", "--blocks", "2", "--steps", "2", "--iterations", "3", "--meta-samples", "2"),
        *("--episodes", "3", "--evaluations", "4"),
    ],
    "diffusion_design.py": [
        *("--conditions", "1", "7", "--blocks", "2", "--iterations", "2", "--timesteps", "256", "--rollouts", "32"),
        *("--noises", "4", "--draws", "2", "--episodes", "3"),
    ],
    "ask_tell.py": ["--planner", "random", "--tokens-per-step", "6", "--questions", "30"],
}


def run(name: str, *arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, env=environment, timeout=500
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_example_is_run_here_and_listed():
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == set(RUNS)
    page = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}`" in page for name in files)


@pytest.mark.parametrize("name", sorted(RUNS))
def test_help_lists_the_arguments(name, monkeypatch, capsys):
    """In this process: what the examples import is loaded once."""
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert ended.value.code in (0, None) and "--seed" in capsys.readouterr().out


def test_random_rollout():
    output = run("random_rollout.py", *RUNS["random_rollout.py"])
    prompt = re.search(r"prompt: (.+)", output).group(1)
    assert len(re.findall(r"^step \d", output, flags=re.M)) == 6 and prompt.count(", ") >= 5
    assert output == run("random_rollout.py", *RUNS["random_rollout.py"])


@pytest.mark.parametrize("agent", ["custom_agent:DistinctAgent", "random"])
def test_custom_agent(agent):
    output = run("custom_agent.py", "--agent", agent, *RUNS["custom_agent.py"])
    assert re.search(r"(distinct|random): 36 answers, cosine with the true taste 0\.\d+", output)
    assert "estimate converged: True" in output


def test_the_custom_agent_shows_different_tokens():
    import gymnasium
    import numpy as np

    module = load("custom_agent.py")
    env = gymnasium.make_vec("edpbrl/PromptConstruction-v0", num_envs=8, tokens_per_step=5)
    agent = module.DistinctAgent(env, num_options=4, episodes=1)
    observations, _ = env.reset()
    for _ in range(6):
        actions, _ = agent.predict(observations)
        assert all(np.unique(group).size == 4 for group in actions.reshape(2, 4))
        observations, *_ = env.step(actions)


def test_plug_in_environment():
    from gymnasium.utils.env_checker import check_env

    module = load("plug_in_environment.py")
    check_env(module.ColourWalk(), skip_render_check=True)
    output = run("plug_in_environment.py", *RUNS["plug_in_environment.py"])
    assert "Design by" in output and "efficiency" in output
    assert float(re.search(r"80 answers, .*cosine (\S+)", output).group(1)) > 0.8


def test_maskable_ppo_beats_random():
    skip_without("rl")
    output = run("maskable_ppo.py", *RUNS["maskable_ppo.py"])
    found = {name: (float(mean), float(error)) for name, mean, error in
             re.findall(r"^\s+(MaskablePPO|Random)\s+(\S+) \+- (\S+)$", output, flags=re.M)}  # fmt: skip
    (ours, our_error), (random, random_error) = found["MaskablePPO"], found["Random"]
    assert ours - random > max(our_error, random_error, (our_error**2 + random_error**2) ** 0.5)


def test_the_saved_policy_beats_random_and_serves_personalize(tmp_path):
    skip_without("rl")
    output = run("personalize_policy.py", *RUNS["personalize_policy.py"], "--out", str(tmp_path))
    means = dict(re.findall(r"^\s+(MaskablePPO|Random)\s+(\S+) \S+$", output, flags=re.M))
    assert float(means["MaskablePPO"]) > float(means["Random"])
    from edpbrl_gym.cli import main

    command = output.splitlines()[-1].split()
    assert command[:2] == ["edpbrl", "personalize"]
    assert main([*command[1:], "--count", "2", "--out", str(tmp_path / "prompts.csv")]) == 0
    assert "policy" in (tmp_path / "prompts.csv").read_text()


def test_ask_tell(tmp_path):
    output = run("ask_tell.py", *RUNS["ask_tell.py"], "--folder", str(tmp_path / "session"))
    assert re.search(r"^30 questions, predicted accuracy \d+\.\d%", output, flags=re.M)
    assert (tmp_path / "session").is_dir()


def test_human_oracle(tmp_path):
    skip_without("study")
    output = run("human_oracle.py", *RUNS["human_oracle.py"])
    assert re.search(r"^6 answers by p[0-9a-f]{12}; last: ", output, flags=re.M)
    assert "estimate converged: True" in output and "The person is at the last page: finished" in output
    output = run("human_oracle.py", "--folder", str(tmp_path / "study"), "--timeout", "0.2")
    assert "Written:" in output and "0 answers of the loop 'example' are stored" in output


def test_text_generation(tmp_path, monkeypatch):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "nothing yet"))  # a fresh machine: no model is named or trained
    output = run("text_generation.py", *RUNS["text_generation.py"])
    assert re.search(r"^\d+ tokens, [0-3] words: ", output, flags=re.M)
    assert [line for line in output.splitlines() if line.startswith("word")] == ["word 1", "word 2", "word 3"]
    assert (
        len(re.findall(r"^  > ", output, flags=re.M)) == 3 and len(re.findall(r"^    ['\"]", output, flags=re.M)) == 9
    )
    assert re.search(r"^12 answers, cosine with the true taste -?[01]\.\d+$", output, flags=re.M)


def test_local_judge():
    output = run("local_judge.py", *RUNS["local_judge.py"])
    assert re.search(r"^verdict: a dark alley in the rain \(answered, \d+ tokens\)$", output, flags=re.M)


@pytest.mark.parametrize("how", ["pool", "episodes"])
def test_diffusion_taste(tmp_path, how):
    skip_without("images")
    out = ["--out", str(tmp_path / "run"), "--tensorboard", str(tmp_path / "board")]
    output = run("diffusion_taste.py", *RUNS["diffusion_taste.py"], "--how", how, *out)
    assert re.search(r"^6 answers, cosine with the true taste -?[01]\.\d+$", output, flags=re.M)
    found = re.findall(r"^  (.{20}) +(-?\d\.\d+) \+-", output, flags=re.M)
    means = {name.strip(): float(mean) for name, mean in found}
    # the best of all sequences from the same noises, by the estimate that chose them
    assert means["personalised"] >= means["random directions"]
    assert (tmp_path / "run" / "sheet.png").stat().st_size > 1000
    assert list((tmp_path / "board").glob("events.*"))


def test_diffusion_reinforce(tmp_path):
    skip_without("images")
    output = run("diffusion_reinforce.py", *RUNS["diffusion_reinforce.py"], "--tensorboard", str(tmp_path))
    assert re.search(r"^objective in training: -?\d+\.\d+ in step 0, -?\d+\.\d+ in step 2$", output, flags=re.M)
    assert len(re.findall(r"objective +-?\d+\.\d+ \+- \d", output)) == 2
    assert list(tmp_path.glob("events.*"))


def test_diffusion_design(tmp_path):
    skip_without("images", "rl")
    output = run("diffusion_design.py", *RUNS["diffusion_design.py"], "--tensorboard", str(tmp_path))
    assert len(re.findall(r"^iteration \d: objective ", output, flags=re.M)) == 2
    gap = float(re.search(r"the gap, by trying all sequences +(-?\d+\.\d+)", output)[1])
    bound = float(re.search(r"upper bound, for any features +(\d+\.\d+)", output)[1])
    assert gap < bound
    assert len(re.findall(r"^(deep|random) +6 answers, cosine", output, flags=re.M)) == 2
    assert list(tmp_path.glob("events.*"))
