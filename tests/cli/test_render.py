"""``edpbrl render`` end to end on a tiny Stable Diffusion: files of prompts, manifest, sheet, stops, errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.rendering import Renderer, RenderSettings
from tests.helpers.tiny_diffusion import save_tiny_stable_diffusion

PROMPTS = ["a gate, warm sunshine", "a sea", "Zürich at dawn, fog, calm"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_stable_diffusion(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def given(model, tmp_path):
    """Arguments of a small run with its own cache."""
    fixed = ["--steps", "2", "--height", "32", "--width", "32"]
    return ["--model", str(model), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), *fixed]


def manifest(tmp_path) -> pandas.DataFrame:
    return pandas.read_csv(tmp_path / "out" / "manifest.csv", keep_default_na=False)


def test_a_text_file_becomes_images_manifest_and_sheet(given, model, tmp_path, capsys):
    file = tmp_path / "prompts.txt"
    file.write_text("\ufeff" + "\n\n".join([*PROMPTS, PROMPTS[0]]) + "\n", encoding="utf-8")
    assert main(["render", str(file), *given, "--seed", "3", "4"]) == 0
    printed = capsys.readouterr().out
    assert "6 images of 3 prompts" in printed and "sheet.png" in printed
    table = manifest(tmp_path)
    assert table["prompt"].tolist() == [prompt for prompt in PROMPTS for _ in range(2)]
    assert table["seed"].tolist() == [3, 4] * 3 and not table["flagged"].any() and not table["cut"].any()
    settings = RenderSettings(model=str(model), steps=2, height=32, width=32)
    images = Renderer(settings, cache_folder=tmp_path / "cache").render(table["prompt"].tolist(), seed=[3, 4] * 3)
    for image, row in zip(images, table.itertuples(), strict=True):
        assert (tmp_path / "out" / row.file).read_bytes() == image.png
        assert (row.key, row.sha256, row.width, row.height) == (image.key, image.sha256, 32, 32)
    sheet = np.asarray(Image.open(tmp_path / "out" / "sheet.png"))
    assert sheet.shape[1] == 24 + 256 + 20 + 256 + 24  # a column for each seed
    picture = np.asarray(images[0].load().resize((256, 256), Image.Resampling.NEAREST))
    places = [top for top in range(sheet.shape[0] - 256) if np.array_equal(sheet[top : top + 256, 24:280], picture)]
    assert len(places) == 1


def test_workers_draw_the_same_images(given, tmp_path):
    """A single batch: what is done for it is what a worker does, in this process."""
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    command = ["render", str(tmp_path / "prompts.txt"), *given, "--sheet-columns", "0"]
    assert main([*command, "--jobs", "2"]) == 0
    table = manifest(tmp_path)
    assert main([*command, "--cache", str(tmp_path / "other")]) == 0
    pandas.testing.assert_frame_equal(manifest(tmp_path), table)


def test_tables_of_the_other_commands_are_read(given, tmp_path, capsys):
    questions = pandas.DataFrame(
        {
            "episode": [0, 0],
            "step": [0, 1],
            "option_1": ["a gate", "a gate, fog"],
            "option_2": ["a sea", "a gate"],
            "choice": ["", "1"],
        }
    )
    questions.to_csv(tmp_path / "questions.csv", index=False)
    assert main(["render", str(tmp_path / "questions.csv"), *given, "--sheet-columns", "0"]) == 0
    assert manifest(tmp_path)["prompt"].tolist() == ["a gate", "a sea", "a gate, fog"]
    assert not (tmp_path / "out" / "sheet.png").exists()
    pandas.DataFrame({"rank": [1], "prompt": ["a sea, dusk"], "caption": ["fog"]}).to_csv(tmp_path / "p.csv")
    assert main(["render", str(tmp_path / "p.csv"), *given, "--prefixes"]) == 0
    assert manifest(tmp_path)["prompt"].tolist() == ["a sea", "a sea, dusk"]
    assert main(["render", str(tmp_path / "p.csv"), *given, "--column", "caption", "prompt"]) == 0
    assert manifest(tmp_path)["prompt"].tolist() == ["fog", "a sea, dusk"]
    capsys.readouterr()
    assert main(["render", str(tmp_path / "p.csv"), *given, "--column", "captions"]) == 2
    assert "Expected the column(s) captions in" in capsys.readouterr().err


def test_a_flagged_image_is_named_and_not_shown(given, tmp_path, capsys):
    flagging = save_tiny_stable_diffusion(tmp_path / "model", safety_checker=True)
    (tmp_path / "prompts.txt").write_text("a gate\n" + "a " * 90)
    given[given.index("--model") + 1] = str(flagging)
    assert main(["render", str(tmp_path / "prompts.txt"), *given]) == 0
    printed = capsys.readouterr().out
    assert "Flagged by the model's safety checker, not shown: 2" in printed and "0 images of 2" in printed
    assert "Longer than the model reads, rendered from their beginnings: 1" in printed
    table = manifest(tmp_path)
    assert table["flagged"].all() and table["file"].tolist() == ["", ""] and table["cut"].tolist() == [False, True]
    assert [path.name for path in (tmp_path / "out").glob("*.png")] == ["sheet.png"]


def test_an_interrupted_run_says_how_far_it_came_and_goes_on(given, tmp_path, capsys, monkeypatch):
    from edpbrl_gym.rendering import renderer

    generate, batches = renderer.generate, []

    def interrupted(*arguments):
        if len(batches) == 1:
            raise KeyboardInterrupt
        batches.append(arguments)
        return generate(*arguments)

    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    command = ["render", str(tmp_path / "prompts.txt"), *given, "--batch-size", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(renderer, "generate", interrupted)
        assert main(command) == 130
    said = capsys.readouterr()
    assert "stopped by you; 2 of 3 images are in the cache, and the same command makes the rest" in said.err
    assert not (tmp_path / "out" / "manifest.csv").exists()
    batches.clear()
    assert main(command) == 0
    assert manifest(tmp_path)["prompt"].tolist() == PROMPTS


def test_a_killed_run_goes_on(given, tmp_path, capsys):
    prompts = [f"a gate, number {i}" for i in range(24)]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts))
    command = ["render", str(tmp_path / "prompts.txt"), *given, "--batch-size", "1", "--sheet-columns", "0"]
    run = subprocess.Popen([sys.executable, "-m", "edpbrl_gym.cli", *command], stderr=subprocess.DEVNULL)
    cache = tmp_path / "cache"
    try:
        for _ in range(30_000):  # at most 10 minutes on a busy machine
            if len(list(cache.rglob("*.json"))) >= 4 or run.poll() is not None:
                break
            time.sleep(0.02)
        os.kill(run.pid, signal.SIGKILL)
    finally:
        assert run.wait() == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in cache.rglob("*.json")}
    assert 4 <= len(done) < 24
    assert main(command) == 0
    assert "24 images of 24 prompts" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in done} == done  # none was rendered again
    assert manifest(tmp_path)["prompt"].tolist() == prompts
    assert len(list((tmp_path / "out").glob("*.png"))) == 24


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (["--steps", "0"], 2, "Expected steps >= 1"),
        (["--guidance", "-1"], 2, "guidance >= 0"),
        (["--height", "100"], 2, "multiple of 8"),
        (["--batch-size", "0"], 2, "--batch-size >= 1"),
        (["--seed", "-1"], 2, "--seed >= 0"),
        (["--column", "x"], 2, "CSV file with --column"),
        (["--dtype", "int8"], 2, "int8"),
        (["--model", "nowhere/at/all"], 1, "model folder or a hub id"),
        (["--device", "toaster"], 1, "Expected device as 'cpu'"),
    ],
)
def test_wrong_arguments_are_one_line(given, tmp_path, capsys, change, code, text):
    (tmp_path / "prompts.txt").write_text("a gate")
    assert main(["render", str(tmp_path / "prompts.txt"), *given, *change]) == code
    said = capsys.readouterr().err
    assert text in said and "Traceback" not in said


def test_wrong_files_are_explained(given, tmp_path, capsys):
    for name, content, text in (
        ("none.txt", None, "Expected a file of prompts"),
        ("empty.txt", b"\n \n", "at least one prompt"),
        ("latin.txt", "Zürich".encode("latin-1"), "text in UTF-8"),
        ("empty.csv", b"", "CSV file with a header"),
        ("other.csv", b"a,b\n1,2\n", "Expected the column(s) prompt, text or option_1"),
        ("blank.csv", b"prompt,b\n,2\n", "at least one prompt"),
        (
            "unquoted.csv",
            b'prompt\n"a sea"\na gate, fog\n',
            'got 2 in line 3; put prompts that hold a comma in double quotes ("a gate, fog")',
        ),
        ("open.csv", b'prompt\n"a gate', "it can't be read"),
        ("latin.csv", "prompt\nZürich".encode("latin-1"), "CSV file in UTF-8"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert main(["render", str(tmp_path / name), *given]) == 2
        assert text in capsys.readouterr().err
    (tmp_path / "out").write_text("")
    (tmp_path / "prompts.txt").write_text("a gate")
    assert main(["render", str(tmp_path / "prompts.txt"), *given]) == 2
    assert "Expected a folder for the images with --out, got the file" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()


def test_long_prompts_are_counted_once_whatever_the_seeds(given, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("a gate\n" + "a " * 90)
    assert main(["render", str(tmp_path / "prompts.txt"), *given, "--seed", "0", "1"]) == 0
    printed = capsys.readouterr().out
    assert "4 images of 2 prompts" in printed
    assert "Longer than the model reads, rendered from their beginnings: 1\n" in printed
