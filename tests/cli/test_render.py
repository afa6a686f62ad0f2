"""``edpbrl render`` end to end on a tiny Stable Diffusion: files of prompts, manifest, sheet, stops, errors."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.rendering import RenderSettings
from tests.helpers.picture_servers import OpenAIServer, Reply
from tests.helpers.tiny_diffusion import renderer_of, save_tiny_stable_diffusion

PROMPTS = ["a gate, warm sunshine", "a sea", "Zürich at dawn, fog, calm"]


@pytest.fixture
def given(tiny_pipeline, tmp_path):
    """Arguments of a small run with its own cache."""
    fixed = ["--steps", "2", "--height", "32", "--width", "32", "--cache", str(tmp_path / "cache")]
    return ["--renderer", str(tiny_pipeline), "--out", str(tmp_path / "out"), *fixed]


def manifest(tmp_path) -> pandas.DataFrame:
    return pandas.read_csv(tmp_path / "out" / "manifest.csv", keep_default_na=False)


def test_a_text_file_becomes_images_manifest_and_sheet(given, tiny_pipeline, tmp_path, capsys):
    file = tmp_path / "prompts.txt"
    file.write_text("\ufeff" + "\n\n".join([*PROMPTS, PROMPTS[0]]) + "\n", encoding="utf-8")
    assert main(["render", str(file), *given, "--seed", "3", "4"]) == 0
    printed = capsys.readouterr().out
    assert "6 images of 3 prompts" in printed and "sheet.png" in printed
    table = manifest(tmp_path)
    assert table["prompt"].tolist() == [prompt for prompt in PROMPTS for _ in range(2)]
    assert table["seed"].tolist() == [3, 4] * 3 and not table["flagged"].any() and not table["cut"].any()
    settings = RenderSettings(model=str(tiny_pipeline), steps=2, height=32, width=32)
    images = renderer_of(settings, cache_folder=tmp_path / "cache").render(table["prompt"].tolist(), seed=[3, 4] * 3)
    for image, row in zip(images, table.itertuples(), strict=True):
        assert (tmp_path / "out" / row.file).read_bytes() == image.png
        assert (row.key, row.sha256, row.width, row.height) == (image.key, image.sha256, 32, 32)
    sheet = np.asarray(Image.open(tmp_path / "out" / "sheet.png"))
    assert sheet.shape[1] == 24 + 256 + 20 + 256 + 24  # a column for each seed
    picture = np.asarray(images[0].load().resize((256, 256), Image.Resampling.NEAREST))
    places = [top for top in range(sheet.shape[0] - 256) if np.array_equal(sheet[top : top + 256, 24:280], picture)]
    assert len(places) == 1


def test_tables_of_the_other_commands_are_read(given, tmp_path):
    asked = {"option_1": ["a gate", "a gate, fog"], "option_2": ["a sea", "a gate"], "choice": ["", "1"]}
    questions = pandas.DataFrame({"episode": 0, "step": [0, 1], **asked})
    questions.to_csv(tmp_path / "questions.csv", index=False)
    assert main(["render", str(tmp_path / "questions.csv"), *given, "--sheet-columns", "0"]) == 0
    assert manifest(tmp_path)["prompt"].tolist() == ["a gate", "a sea", "a gate, fog"]
    assert not (tmp_path / "out" / "sheet.png").exists()
    pandas.DataFrame({"rank": [1], "prompt": ["a sea, dusk"], "caption": ["fog"]}).to_csv(tmp_path / "p.csv")
    assert main(["render", str(tmp_path / "p.csv"), *given, "--prefixes"]) == 0
    assert manifest(tmp_path)["prompt"].tolist() == ["a sea", "a sea, dusk"]
    assert main(["render", str(tmp_path / "p.csv"), *given, "--column", "caption", "prompt"]) == 0
    assert manifest(tmp_path)["prompt"].tolist() == ["fog", "a sea, dusk"]


def test_a_flagged_image_is_named_and_not_shown(given, tmp_path, capsys):
    flagging = save_tiny_stable_diffusion(tmp_path / "model", safety_checker=True)
    (tmp_path / "prompts.txt").write_text("a gate\n" + "a " * 90)
    given[given.index("--renderer") + 1] = str(flagging)
    assert main(["render", str(tmp_path / "prompts.txt"), *given]) == 0
    printed = capsys.readouterr().out
    assert "Flagged by the model's safety checker, not shown: 2" in printed and "0 images of 2" in printed
    assert "Longer than the model reads, rendered from their beginnings: 1" in printed
    table = manifest(tmp_path)
    assert table["flagged"].all() and table["file"].tolist() == ["", ""] and table["cut"].tolist() == [False, True]
    assert [path.name for path in (tmp_path / "out").glob("*.png")] == ["sheet.png"]


def test_an_interrupted_run_says_how_far_it_came_and_goes_on(given, tmp_path, capsys, monkeypatch):
    from edpbrl_gym.rendering.diffusers import renderer

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


def picky(tmp_path, *more):
    """Arguments of a run of 4 prompts, one of which the renderer does not draw."""
    (tmp_path / "prompts.txt").write_text("a gate\nfences\nsunny\na sea at dawn\n", encoding="utf-8")
    given = ["render", str(tmp_path / "prompts.txt"), "--out", str(tmp_path / "out"), "--cache"]
    return [*given, str(tmp_path / "cache"), "--renderer", "tests.helpers.renderers:Picky", *more]


def test_any_renderer_draws_and_what_it_does_not_draw_is_said(tmp_path, capsys):
    assert main(picky(tmp_path, "--steps", "3")) == 2
    assert "Expected an option of the renderer" in capsys.readouterr().err
    assert main(picky(tmp_path)) == 1
    printed = capsys.readouterr()
    assert "4 pictures by a picky one: 0 in the cache, 4 to be drawn, for 1 (at 0.25 each)" in printed.out
    assert "3 images of 4 prompts" in printed.out and "Without a picture: 1, with the reasons" in printed.out
    assert "Cost: 0.75" in printed.out and "got none of 1 (too long)" in printed.err
    table = manifest(tmp_path)
    assert table["prompt"].tolist() == ["a gate", "fences", "sunny", "a sea at dawn"]
    assert table["reason"].tolist() == ["", "", "too long", ""] and not table["flagged"].any()
    assert [bool(name) for name in table["file"]] == [bool(sha) for sha in table["sha256"]] == [True, True, False, True]
    sheet = np.asarray(Image.open(tmp_path / "out" / "sheet.png"))
    tiles = [sheet[24 + 30 : 24 + 60, 24 + 276 * i + 128] for i in range(4)]
    colours = [sorted({tuple(map(int, pixel)) for pixel in tile})[0] for tile in tiles]
    assert [colours[i] for i in (0, 1, 3)] == [(6, 0, 0), (6, 0, 0), (13, 0, 0)] and colours[2] == (238, 238, 238)


def test_a_budget_of_new_pictures_is_kept_and_used_up_later(tmp_path, capsys):
    assert main(picky(tmp_path, "--renderer-option", "every=100", "--budget-pictures", "3", "--price", "0.5")) == 1
    printed = capsys.readouterr()
    assert "0 in the cache, 3 to be drawn of 4, as --budget-pictures says, for 1.5 (at 0.5 each)" in printed.out
    assert "Cost: 1.5" in printed.out and "the budget of 3 new images is used up" in printed.err
    assert manifest(tmp_path)["reason"].str.contains("budget").tolist() == [False] * 3 + [True]
    assert main(picky(tmp_path, "--renderer-option", "every=100", "--budget-pictures", "1")) == 0
    printed = capsys.readouterr().out
    assert "3 in the cache, 1 to be drawn, for 0.25" in printed and "Cost: 0.25" in printed
    assert (manifest(tmp_path)["reason"] == "").all()
    assert main(picky(tmp_path, "--budget-pictures", "-1")) == 2
    assert "--budget-pictures" in capsys.readouterr().err


@pytest.mark.needs("judge")
def test_a_service_is_asked_for_what_the_command_says_and_paid_once(tmp_path, capsys):
    def play(call):
        if call.text == "a scandal":
            return Reply(400, {"error": {"code": "moderation_blocked", "message": "not allowed", "type": "x"}})
        return Reply(200, call.good(b"<html>")) if call.text == "a wreck" else None

    (tmp_path / "prompts.txt").write_text("a gate\na scandal\na wreck\na sea\n", encoding="utf-8")
    with OpenAIServer(play) as server:
        given = ["render", tmp_path / "prompts.txt", "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
        given += ["--renderer", server.spec, "--renderer-option", "quality=high", "--price", "0.5", "--seed", "0", "1"]
        given = [str(word) for word in given]
        assert main([*given, "--steps", "3", "--height", "32", "--width", "48", "--budget-pictures", "6"]) == 1
        printed = capsys.readouterr()
        assert "8 pictures by flux at http" in printed.out and "6 to be drawn of 8" in printed.out
        assert "Flagged by the model's safety checker, not shown: 2" in printed.out and "used up" in printed.err
        documents = [call.document for call in server.calls]
        sent = {(one["quality"], one["num_inference_steps"], one["size"]) for one in documents}
        assert sent == {("high", 3, "48x32")}
        table = manifest(tmp_path)
        assert table["prompt"].tolist() == [
            text for text in (tmp_path / "prompts.txt").read_text().splitlines() for _ in "01"
        ]
        assert table["flagged"].tolist() == [False, False, True, True] + [False] * 4
        assert table["reason"].ne("").tolist() == [False] * 4 + [True] * 4
        assert table["reason"].str.contains("budget").tolist() == [False] * 6 + [True] * 2
        assert main([*given, "--steps", "3", "--height", "32", "--width", "48"]) == 1
        assert "4 in the cache, 4 to be drawn, for 2 (at 0.5 each)" in capsys.readouterr().out
        paid = {text: number for (text, _), number in server.paid.items()}
        assert manifest(tmp_path)["reason"].ne("").tolist() == [False] * 4 + [True] * 2 + [False] * 2
        assert paid["a gate"] == paid["a sea"] == 2  # both numbers of a server without seeds


def test_options_of_one_renderer_alone_are_given_by_name(tmp_path, capsys):
    file = tmp_path / "prompts.txt"
    file.write_text("a gate\n", encoding="utf-8")
    given = ["render", str(file), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    given += ["--renderer", "tests.rendering.test_loading:Service"]
    assert main([*given, "--renderer-option", "colour=7", "--renderer-option", "most=1", "--batch-size", "1"]) == 0
    with Image.open(tmp_path / "out" / manifest(tmp_path)["file"][0]) as picture:
        assert picture.getpixel((0, 0)) == (7, 0, 0)
    capsys.readouterr()
    for option, said in (
        ("quality=high", "got 'quality'; its options: colour, batch_size, most"),
        ("colour", "Expected --renderer-option as NAME=VALUE, got 'colour'"),
        ("batch-size=2", "batch_size of the renderer once"),
    ):
        assert main([*given, "--batch-size", "1", "--renderer-option", option]) == 2
        assert said in capsys.readouterr().err
    assert main(["render", str(file)]) == 2
    assert "Expected --renderer, who draws: 'diffusers:SOURCE'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "new"),
    [
        (["render", "p.txt", "--model", "m"], "--renderer"),
        (["personalize", "t.safetensors", "--model=m"], "--renderer"),
        (["personalize", "t.safetensors", "--pictures", "3"], "--draw"),
        (["reproduce", "llm", "--render-model", "m"], "--renderer"),
    ],
)
def test_an_old_name_of_an_option_is_told_its_new_one(given, new, capsys):
    assert main(given) == 2
    assert f"error: Expected {new}, the name of " in (said := capsys.readouterr().err) and said.count("\n") == 1
