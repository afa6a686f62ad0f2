"""``edpbrl personalize`` with several tastes and pictures, on tiny models."""

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym.cli import main
from edpbrl_gym.features import load_encoder, save_precomputed
from edpbrl_gym.personalize.taste import load_taste, save_taste
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from tests.helpers.commands import refused

BASES = ("my dog", "a gate")
TRUTH = "a calm sea by moonlight"
DIMENSION = 12


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, tiny_pipeline):
    """A tiny Stable Diffusion, a vocabulary, two tastes, and an encoder of every text, as a file."""
    folder = tmp_path_factory.mktemp("personalize")
    (folder / "model").symlink_to(tiny_pipeline)
    words = folder / "words"
    words.mkdir()
    for name, tokens in {"1-base": ["a fox", "a hut"], "2-ambient": ["first snow", "hot noon", "fog"],
                         "3-light": ["moonlight", "neon glow"]}.items():  # fmt: skip
        (words / f"{name}.txt").write_text("\n".join(tokens) + "\n")
    vocabulary = load_vocabulary(words)
    firsts = [*BASES, *vocabulary.tokens[0]]
    seconds = [f"{first}, {token}" for first in firsts for token in vocabulary.tokens[1]]
    texts = [*firsts, *seconds, *(f"{text}, {token}" for text in seconds for token in vocabulary.tokens[2])]
    texts = list(dict.fromkeys([*texts, *vocabulary.all_tokens, TRUTH]))
    rng = np.random.default_rng(1000)
    save_precomputed(folder / "clip.npz", texts, rng.normal(size=(len(texts), DIMENSION)))
    spec = f"precomputed:{folder / 'clip.npz'}"
    encoder = load_encoder(spec)
    for name in ("designed", "random"):
        note = {"encoder": spec, "encoder_fingerprint": encoder.fingerprint}
        save_taste(folder / f"{name}.safetensors", rng.normal(size=DIMENSION), note)
    return folder


def given(tiny, out, *more):
    return [str(word) for word in ("personalize", tiny / "designed.safetensors", "--vocabulary", tiny / "words",
                                   "--compare", f"Random={tiny / 'random.safetensors'}", "--count", 3,
                                   "--out", out / "prompts.csv", *more)]  # fmt: skip


def pictured(tiny, out, *more):
    return given(tiny, out, "--renderer", tiny / "model", "--steps", 2, "--height", 32, "--width", 32,
                 "--draw", 2, "--cache", tiny / "images", *more)  # fmt: skip


def scores(tiny, name, texts):
    encoder = load_encoder(f"precomputed:{tiny / 'clip.npz'}")
    theta = encoder.encode([TRUTH])[0] if name == "truth" else load_taste(tiny / f"{name}.safetensors").theta
    return encoder.encode(list(texts)).astype(float) @ theta


def test_two_tastes_and_the_truth_for_two_bases(tiny, tmp_path, capsys):
    assert main(given(tiny, tmp_path, "--base", *BASES, "--truth", TRUTH)) == 0
    printed = capsys.readouterr().out
    for text in ("ED-PBRL", "Random", "RankScore", "GTScore", "for 'my dog'", "for 'a gate'"):
        assert text in printed
    table = pandas.read_csv(tmp_path / "prompts.csv")
    assert list(table.groupby(["base", "taste"], sort=False).size()) == [3, 3, 3, 3] and set(table["base"]) == {*BASES}
    for taste, name in (("ED-PBRL", "designed"), ("Random", "random")):
        rows = table[table["taste"] == taste]
        assert rows["score"].to_numpy() == pytest.approx(scores(tiny, name, rows["prompt"]), abs=1e-6)
        assert rows["base_score"].to_numpy() == pytest.approx(scores(tiny, name, rows["base"]), abs=1e-6)
    assert table["true_score"].to_numpy() == pytest.approx(scores(tiny, "truth", table["prompt"]), abs=1e-6)
    assert "image" not in table and not list(tmp_path.glob("*.png"))
    # the true taste may be a file, and tastes are compared by name
    random, again = tiny / "random.safetensors", tiny / "designed.safetensors"
    more = ["--compare", f"Random={random}", f"Again={again}", "--truth", random]
    assert main(given(tiny, tmp_path, "--base", BASES[0], *more)) == 0
    again = pandas.read_csv(tmp_path / "prompts.csv")
    assert list(dict.fromkeys(again["taste"])) == ["ED-PBRL", "Random", "Again"]
    random = again[again["taste"] == "Random"]
    assert random["true_score"].to_numpy() == pytest.approx(random["score"].to_numpy())


def test_pictures_and_sheet(tiny, tmp_path, capsys):
    command = pictured(tiny, tmp_path, "--base", *BASES, "--truth", TRUTH)
    assert main(command) == 0
    assert "Contact sheet" in capsys.readouterr().out
    table = pandas.read_csv(tmp_path / "prompts.csv")
    drawn = table[table["image"].notna()]
    best = table[table["rank"] <= 2]
    assert len(best) == 8 and best["image"].notna().all()
    assert drawn.groupby("prompt")["image"].nunique().eq(1).all() and not drawn["flagged"].any()
    for path in drawn["image"]:
        assert Image.open(path).size == (32, 32)
    sheet = Image.open(tmp_path / "prompts.png")
    assert sheet.width == 48 + 128 + 3 * 256 + 2 * 20
    written = sorted((path.name, path.stat().st_mtime_ns) for path in (tiny / "images").rglob("*.png"))
    bytes_before = (tmp_path / "prompts.png").read_bytes()
    assert main(command) == 0  # nothing is drawn twice, and the sheet is the same
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (tiny / "images").rglob("*.png")) == written
    assert (tmp_path / "prompts.png").read_bytes() == bytes_before


def test_wildcards_and_a_page_beside_the_prompts(tiny, tmp_path, capsys):
    page, wild = tmp_path / "to" / "page.html", tmp_path / "wild"
    keep = ["--wildcards", wild, "--page", page]
    assert main(pictured(tiny, tmp_path, "--base", BASES[0], *keep)) == 0
    assert "Page: " in capsys.readouterr().out
    assert sorted(file.name for file in wild.iterdir()) == ["2-ambient.txt", "3-light.txt", "prompt.txt"]
    lines = [(wild / name).read_text().strip() for name in ("2-ambient.txt", "3-light.txt")]
    assert (wild / "prompt.txt").read_text() == f"my dog, {', '.join(lines)}\n"
    table = pandas.read_csv(tmp_path / "prompts.csv")
    drawn = table[(table["taste"] == "ED-PBRL") & table["image"].notna() & ~table["flagged"].fillna(True).astype(bool)]
    text = page.read_text(encoding="utf-8")
    assert '<h1 dir="auto">my dog</h1>' in text and len(drawn) >= 2
    assert text.count("<img ") == len(drawn) and all(f">{prompt}</p>" in text for prompt in drawn["prompt"])
    assert main(given(tiny, tmp_path, *keep)) == 0  # without pictures and bases
    text = page.read_text(encoding="utf-8")
    assert text.count('class="prompt"') == 3 and "<img " not in text
    capsys.readouterr()
    refused(capsys, given(tiny, tmp_path, "--page", tmp_path / "prompts.csv"), 2, "a file of its own for the page")


def test_a_prompt_that_is_not_drawn_has_a_tile_that_says_so(tiny, tmp_path, capsys):
    more = ["--renderer", "tests.helpers.renderers:Picky", "--draw", 3, "--cache", tmp_path / "images"]
    assert main(given(tiny, tmp_path, "--base", *BASES, *more, "--renderer-option", "every=2")) == 1
    printed = capsys.readouterr()
    table = pandas.read_csv(tmp_path / "prompts.csv")
    odd = table["prompt"].str.len() % 2 == 1
    assert 0 < odd.sum() < len(table) and (table["image"].notna() == odd).all()
    assert "Contact sheet" in printed.out and "too long" in printed.err and (tmp_path / "prompts.png").is_file()
    new = len({*table["prompt"], *BASES})
    assert f"{new} pictures by a picky one: 0 in the cache, {new} to be drawn, for {new / 4:g}" in printed.out


def test_a_stop_while_drawing_leaves_the_prompts(tiny, tmp_path, capsys, monkeypatch):
    from edpbrl_gym.rendering import CachedRenderer

    def stopped(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(CachedRenderer, "render", stopped)
    assert main(pictured(tiny, tmp_path, "--base", BASES[0])) == 130
    error = capsys.readouterr().err
    assert "the same command resumes" in error and "Traceback" not in error
    assert len(pandas.read_csv(tmp_path / "prompts.csv")) == 6


def test_mistakes_are_told_in_one_line(tiny, tmp_path, capsys, minilm):
    ask = given(tiny, tmp_path)
    refused(capsys, [*ask, "--truth", "none.safetensors"], 1, "none.safetensors")
    refused(capsys, [*ask, "--renderer", tmp_path / "none"], 1, "none")
    assert not (tmp_path / "prompts.csv").exists()
    foreign = save_taste(tmp_path / "minilm.safetensors", np.ones(384),
                         {"encoder": "minilm", "encoder_fingerprint": minilm.fingerprint})  # fmt: skip
    refused(capsys, [*ask, "--compare", f"other={foreign}"], 1, "load the same weights")


def test_the_words_are_those_that_the_taste_was_learnt_with(tiny, tmp_path, capsys):
    """Also where their folder is not; others are used where they are given, and named."""
    note = load_taste(tiny / "designed.safetensors")
    own = Vocabulary(("1-base", "2-ambient", "3-light"), (("a fox", "a hut"), ("fog", "hot noon"), ("moonlight",)))
    small = ["--count", "2", "--shared", "0", "--beam-width", "2", "--out", str(tmp_path / "prompts.csv")]

    def prompts(vocabulary, *options, facts=()):
        file = save_taste(tmp_path / "taste", note.theta, {**note.provenance, **dict(facts)}, vocabulary=vocabulary)
        code = main(["personalize", str(file), *small, *options])
        said = capsys.readouterr()
        if code:
            return code, " ".join(said.err.split())
        rows = pandas.read_csv(tmp_path / "prompts.csv")["prompt"]
        return {phrase for row in rows for phrase in row.split(", ")}, " ".join(said.out.split())

    phrases, said = prompts(own, "--shared", "0")
    assert phrases == {"a fox", "a hut", "fog", "hot noon", "moonlight"}
    assert "words of its own (1-base 2, 2-ambient 2, 3-light 1), with which the taste was learnt" in said
    phrases, said = prompts(own, "--vocabulary", str(tiny / "words"))
    assert f"{tiny / 'words'}; the taste was learnt with words of its own (1-base 2" in said
    phrases, said = prompts(None, "--vocabulary", str(tiny / "words"), facts={"vocabulary_fingerprint": "ab" * 32})
    assert "it was learnt with a vocabulary that its file doesn't hold (sha256 abab" in said
    code, said = prompts(None, facts={"vocabulary_fingerprint": "ab" * 32})
    assert code == 2 and "Expected --vocabulary" in said and "folder of its token files" in said
