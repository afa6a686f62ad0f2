"""What needs no extra, from start to end: features of one's own, questions, answers, a taste, prompts; a study."""

import csv
import json
import os
import re
import subprocess
import sys

import pytest

from edpbrl_gym.comparisons.question_files import read_questions
from edpbrl_gym.features import load_encoder
from tests.helpers.small_vocabulary import write_embedded


def edpbrl(folder, *arguments, typed=None):
    """What a command prints, run in a process of its own."""
    command = [sys.executable, "-m", "edpbrl_gym.cli", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # the package that this process tests
    found = subprocess.run(command, cwd=folder, input=typed, capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_from_features_to_prompts(tmp_path):
    words, spec = write_embedded(tmp_path)
    out = edpbrl(tmp_path, "design", "--vocabulary", words, "--encoder", spec, "--episodes", "12", "--out", "design")
    assert "efficiency" in out
    file = tmp_path / "design" / "questions.csv"
    theta = load_encoder(spec).encode(["golden hour light"])[0]
    scored = [load_encoder(spec).encode(texts) @ theta for _, _, texts in read_questions(file)]
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    with open(file, "w", newline="") as lines:
        table = csv.DictWriter(lines, list(rows[0]))
        table.writeheader()
        table.writerows(row | {"choice": int(scores.argmax()) + 1} for row, scores in zip(rows, scored, strict=True))
    out = edpbrl(
        tmp_path, "estimate", str(file), "--encoder", spec, "--vocabulary", words, "--out", "theta.safetensors"
    )
    assert "converged" in out and "36 questions with 4 options" in out
    best = ["personalize", "theta.safetensors", "--encoder", spec, "--vocabulary", words, "--count", "3"]
    edpbrl(tmp_path, *best, "--out", "prompts.csv")
    with open(tmp_path / "prompts.csv", newline="") as lines:
        prompts = list(csv.DictReader(lines))
    assert len(prompts) == 3 and all("golden hour light" in row["prompt"] for row in prompts)


def test_questions_in_the_terminal(tmp_path):
    words, spec = write_embedded(tmp_path)
    where = ["--vocabulary", words, "--encoder", spec, "--num-options", "4", "--out", "asked"]
    edpbrl(tmp_path, "ask", "--terminal", *where, "--questions", "5", typed="1\n2\n3\n4\n1\n")
    assert {path.name for path in (tmp_path / "asked").iterdir()} >= {"answers.parquet", "taste.safetensors"}
    edpbrl(tmp_path, "estimate", "asked/answers.parquet", "--prior", "ridge", "--out", "again.safetensors")


@pytest.mark.needs("study")
def test_a_study_is_checked(tmp_path):
    words, spec = write_embedded(tmp_path)
    edpbrl(tmp_path, "study", "init", "study")
    config = tmp_path / "study" / "study.toml"
    text = config.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^#? *vocabulary = .*$", f"vocabulary = {json.dumps(words)}", text, count=1)
    text = re.sub(r"(?m)^#? *encoder = .*$", f"encoder = {json.dumps(spec)}", text, count=1)
    config.write_text(text, encoding="utf-8")
    assert "first question in" in edpbrl(tmp_path, "study", "check", "study")
