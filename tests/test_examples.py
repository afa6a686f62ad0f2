"""Every example runs, and shows what it says."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys

import pytest

from tests.helpers.examples import EXAMPLES, load
from tests.helpers.extras import skip_without

RUNS = {
    "random_rollout.py": ["--seed", "3"],
    "custom_agent.py": ["--episodes", "6", "--tokens-per-step", "10"],
    "plug_in_environment.py": ["--episodes", "10"],
    "maskable_ppo.py": ["--total-timesteps", "1200", "--episodes", "10", "--evaluation-episodes", "48"],
    "personalize_policy.py": [
        *("--total-timesteps", "1152", "--tokens-per-step", "4", "--episodes", "6", "--samples", "50"),
    ],
    "text_generation.py": ["--episodes", "4", "--words", "3"],
    "local_judge.py": ["--demo", "--seed", "1"],
    "human_oracle.py": [],
    "study.py": ["--people", "3", "--questions", "3", "--port", "8766"],
    "diffusion_taste.py": ["--answers", "6", "--blocks", "2", "--steps", "2", "--pool-noises", "2", "--samples", "8"],
    "diffusion_reinforce.py": [
        *("--conditions", "1", "7", "--blocks", "2", "--steps", "2", "--iterations", "3", "--meta-samples", "2"),
        *("--episodes", "3", "--evaluations", "4"),
    ],
    "diffusion_design.py": [
        *("--conditions", "1", "7", "--blocks", "2", "--iterations", "2", "--timesteps", "128", "--rollouts", "16"),
        *("--noises", "2", "--draws", "2", "--episodes", "2"),
    ],
    "score_guided.py": [],
    "ask_tell.py": ["--planner", "random", "--tokens-per-step", "6", "--questions", "4"],
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example as a command with its arguments, in this process: what the examples load is there once."""

    def running(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *RUNS[name], *arguments])
        monkeypatch.syspath_prepend(str(EXAMPLES))  # as Python does for a script
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return running


def test_every_example_is_run_here_and_listed():
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == set(RUNS) and [path.name for path in EXAMPLES.glob("*.ipynb")] == ["demo.ipynb"]
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in [*files, "demo.ipynb"])


def test_the_notebook(tmp_path, monkeypatch, capsys):
    """Its cells run in order, as a kernel runs them, with half of the answers; posters are shown, no outputs stored."""
    skip_without("text")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "demo.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    namespace: dict[str, object] = {"__name__": "__main__"}
    shown = []
    for number, cell in enumerate(cells, start=1):
        code = ast.parse("".join(cell["source"]).replace("session.answered < 20", "session.answered < 10"))
        *statements, last = code.body
        if not isinstance(last, ast.Expr):
            statements, last = code.body, None
        exec(compile(ast.Module(statements, []), f"cell {number}", "exec"), namespace)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace))
    pages = [value._repr_html_() for value in shown if value is not None]
    assert len(pages) == 6 and all(page.count("<svg") == 4 for page in pages)
    assert [page.count("crimson") for page in pages] == [0, 1, 0, 0, 0, 0]
    said = capsys.readouterr().out
    best, random = re.search(r"the best (\d\.\d+), random ones (\d\.\d+)", said).groups()
    assert float(best) > float(random) + 0.05 and "10 answers" in said and re.search(r"likes: \w", said)


def test_random_rollout(run):
    output = run("random_rollout.py")
    prompt = re.search(r"prompt: (.+)", output).group(1)
    assert len(re.findall(r"^step \d", output, flags=re.M)) == 6 and prompt.count(", ") >= 5
    assert output == run("random_rollout.py")


@pytest.mark.parametrize("agent", ["custom_agent:DistinctAgent", "random"])
def test_custom_agent(agent, run):
    output = run("custom_agent.py", "--agent", agent)
    assert re.search(r"(distinct|random): 36 answers, cosine with the true taste 0\.\d+", output)
    assert "estimate converged: True" in output


def test_plug_in_environment(run):
    from gymnasium.utils.env_checker import check_env

    module = load("plug_in_environment.py")
    check_env(module.ColourWalk(), skip_render_check=True)
    output = run("plug_in_environment.py")
    assert "Design by" in output and "efficiency" in output
    assert float(re.search(r"80 answers, .*cosine (\S+)", output).group(1)) > 0.8


def test_maskable_ppo_beats_random(run):
    skip_without("rl")
    output = run("maskable_ppo.py")
    found = {name: (float(mean), float(error)) for name, mean, error in
             re.findall(r"^\s+(MaskablePPO|Random)\s+(\S+) \+- (\S+)$", output, flags=re.M)}  # fmt: skip
    (ours, our_error), (random, random_error) = found["MaskablePPO"], found["Random"]
    assert ours - random > max(our_error, random_error, (our_error**2 + random_error**2) ** 0.5)


def test_the_policy_that_writes_for_a_taste_beats_random(tmp_path, run):
    skip_without("rl")
    output = run("personalize_policy.py", "--out", str(tmp_path))
    means = dict(re.findall(r"^\s+(MaskablePPO|Random)\s+(\S+) \S+$", output, flags=re.M))
    assert float(means["MaskablePPO"]) > float(means["Random"])
    assert (tmp_path / "policy.zip").is_file() and "edpbrl personalize" in output.splitlines()[-1]


def test_score_guided(tmp_path, run):
    skip_without("images")
    import diffusers
    import numpy as np
    import torch
    from PIL import Image

    from edpbrl_gym.personalize import save_taste
    from tests.helpers.tiny_diffusion import DIMENSION, save_projection, save_tiny_stable_diffusion

    model = save_tiny_stable_diffusion(tmp_path / "model")
    projection = save_projection(model, tmp_path / "clip")
    theta = save_taste(tmp_path / "theta.safetensors", np.random.default_rng(5).normal(size=DIMENSION), {})
    given = [str(theta), "a lighthouse", "--model", str(model), "--projection", str(projection), "--num-steps", "2"]
    output = run("score_guided.py", *given, "--strengths", "0", "0.02", "0.2", "--out", str(tmp_path / "out"))
    scores = [float(score) for score in re.findall(r"theta . phi = (-?\d\.\d+)", output)]
    assert scores[0] + 0.05 < scores[1] < scores[2] - 0.05
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(model)
    plain = pipeline("a lighthouse", generator=torch.Generator("cpu").manual_seed(0), num_inference_steps=2).images[0]
    drawn = [np.asarray(Image.open(tmp_path / "out" / f"{name}.png")) for name in ("0", "0.02", "0.2")]
    assert np.array_equal(drawn[0], np.asarray(plain)) and (drawn[2] != drawn[0]).any()


def test_ask_tell(tmp_path, run):
    output = run("ask_tell.py", "--folder", str(tmp_path / "session"))
    assert re.search(r"^4 questions, predicted accuracy \d+\.\d%", output, flags=re.M)
    assert (tmp_path / "session").is_dir()


def test_human_oracle(tmp_path, run):
    skip_without("study")
    output = run("human_oracle.py", "--episodes", "1")
    assert re.search(r"^6 answers by p[0-9a-f]{12}; last: ", output, flags=re.M)
    assert "estimate converged: True" in output and "The person is at the last page: finished" in output
    output = run("human_oracle.py", "--folder", str(tmp_path / "study"), "--timeout", "0.2")
    assert "Written:" in output and "0 answers of the loop 'example' are stored" in output


def test_text_generation(tmp_path, monkeypatch, run):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "nothing yet"))  # a fresh machine: no model is named or trained
    output = run("text_generation.py")
    assert re.search(r"^\d+ tokens, [0-3] words: ", output, flags=re.M)
    assert [line for line in output.splitlines() if line.startswith("word")] == ["word 1", "word 2", "word 3"]
    assert [len(re.findall(line, output, flags=re.M)) for line in (r"^  > ", r"^    ['\"]")] == [3, 9]
    assert re.search(r"^12 answers, cosine with the true taste -?[01]\.\d+$", output, flags=re.M)


def test_local_judge(run):
    output = run("local_judge.py")
    assert re.search(r"^verdict: a dark alley in the rain \(answered, \d+ tokens\)$", output, flags=re.M)


@pytest.mark.parametrize("how", ["pool", "episodes"])
def test_diffusion_taste(tmp_path, how, run):
    skip_without("images")
    out = ["--out", str(tmp_path / "run"), "--tensorboard", str(tmp_path / "board")]
    output = run("diffusion_taste.py", "--how", how, *out)
    assert re.search(r"^6 answers, cosine with the true taste -?[01]\.\d+$", output, flags=re.M)
    found = re.findall(r"^  (.{20}) +(-?\d\.\d+) \+-", output, flags=re.M)
    means = {name.strip(): float(mean) for name, mean in found}
    # the best of all sequences from the same noises, by the estimate that chose them
    assert means["personalised"] >= means["random directions"]
    assert (tmp_path / "run" / "sheet.png").stat().st_size > 1000
    assert list((tmp_path / "board").glob("events.*"))


def test_diffusion_reinforce(tmp_path, run):
    skip_without("images")
    output = run("diffusion_reinforce.py", "--tensorboard", str(tmp_path))
    assert re.findall(r"^objective in training: -?\d+\.\d+ in step (\d)$", output, flags=re.M) == ["0", "2"]
    assert len(re.findall(r"objective +-?\d+\.\d+ \+- \d", output)) == 2
    assert list(tmp_path.glob("events.*"))


def test_diffusion_design(tmp_path, run):
    skip_without("images", "rl")
    output = run("diffusion_design.py", "--tensorboard", str(tmp_path))
    assert len(re.findall(r"^iteration \d: objective ", output, flags=re.M)) == 2
    gap = float(re.search(r"the gap, by trying all sequences +(-?\d+\.\d+)", output)[1])
    bound = float(re.search(r"upper bound, for any features +(\d+\.\d+)", output)[1])
    assert gap < bound
    assert len(re.findall(r"^(deep|random) +4 answers, cosine", output, flags=re.M)) == 2
    assert list(tmp_path.glob("events.*"))
