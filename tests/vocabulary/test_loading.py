"""Vocabulary: loading, its errors, splits, subsets, prompts."""

from __future__ import annotations

import os
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from edpbrl_gym.vocabulary.tokens import fold, normalise, refusal

tokens = st.lists(st.text("abcdefg hij", min_size=1).filter(str.strip), min_size=2, max_size=12)
distinct = tokens.map(lambda found: tuple({" ".join(t.split()).casefold(): t for t in found}.values()))
vocabularies = st.lists(distinct.filter(lambda step: len(step) > 1), min_size=1, max_size=5).map(
    lambda steps: Vocabulary(tuple(f"s{i}" for i in range(len(steps))), tuple(steps))
)


@pytest.fixture
def folder(tmp_path):
    def write(**files: str | bytes):
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / f"{name}.txt").write_bytes(data)
        return tmp_path

    return write


def test_any_folder_alphabetical_or_ordered(folder):
    path = folder(subject="a cat\na dog\n", mood="calm\nangry", light="dusk\n")
    assert load_vocabulary(path).names == ("light", "mood", "subject")
    vocabulary = load_vocabulary(str(path), order=["subject", "mood.txt", "light"])
    assert vocabulary.names == ("subject", "mood", "light")
    assert vocabulary.horizon == 3 and vocabulary.sizes == (2, 2, 1)
    assert vocabulary.all_tokens == ["a cat", "a dog", "calm", "angry", "dusk"]


def test_missing_places(tmp_path):
    with pytest.raises(FileNotFoundError, match="got nothing there"):
        load_vocabulary(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"at least one \.txt file"):
        load_vocabulary(tmp_path)
    file = tmp_path / "file.txt"
    file.write_text("x")
    with pytest.raises(NotADirectoryError, match="give the folder around it"):
        load_vocabulary(file)


@pytest.mark.parametrize(
    ("order", "error", "message"),
    [
        (["a", "c"], ValueError, r"\(a, b\), got 'c'; no c\.txt"),
        (["a"], ValueError, "got no b; add it to order"),
        (["a", "b", "a"], ValueError, "got 'a' 2 times"),
        ("ab", TypeError, "got the string 'ab'"),
    ],
)
def test_bad_orders(folder, order, error, message):
    with pytest.raises(error, match=message):
        load_vocabulary(folder(a="x", b="y"), order=order)


@pytest.mark.parametrize(
    ("names", "tokens", "error", "message"),
    [
        (("a", "b"), (("x",),), ValueError, r"2 name\(s\) and 1 step"),
        (("a", "a"), (("x",), ("y",)), ValueError, "distinct step names"),
        (("a",), ((),), ValueError, "at least one token in step 'a'"),
        (("a",), (("x", "X "),), ValueError, "indices 0 and 1"),
        (("a",), (("x", 3),), TypeError, "got 3 at index 1"),
        (("a",), ("word",), TypeError, "got the string 'word'"),
    ],
)
def test_a_vocabulary_checks_itself(names, tokens, error, message):
    with pytest.raises(error, match=message):
        Vocabulary(names, tokens)


@given(vocabularies, st.integers(0, 2**40), st.floats(0.01, 0.99))
def test_split_is_a_partition_of_every_step(vocabulary, seed, fraction):
    train, test = vocabulary.split(seed, fraction)
    assert (train, test) == vocabulary.split(seed, fraction)
    assert train.names == test.names == vocabulary.names
    for whole, left, right in zip(vocabulary.tokens, train.tokens, test.tokens, strict=True):
        assert left and right and not set(left) & set(right)
        assert sorted(left + right) == sorted(whole)
        assert [t for t in whole if t in left] == list(left)
        assert abs(len(right) - fraction * len(whole)) <= 1.0


def test_split_refuses_what_it_cannot_split():
    with pytest.raises(ValueError, match="at least 2 tokens in step 'b'"):
        Vocabulary(("a", "b"), (("x", "y"), ("z",))).split(0)
    vocabulary = Vocabulary(("a",), (("x", "y"),))
    for fraction in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="test_fraction"):
            vocabulary.split(0, fraction)
    with pytest.raises(ValueError, match="seed"):
        vocabulary.split(-1)


@given(vocabularies, st.integers(1, 15), st.integers(0, 1000))
def test_subset_draws_at_most_that_many_in_order(vocabulary, per_step, seed):
    subset = vocabulary.subset(per_step, seed)
    assert subset == vocabulary.subset(per_step, seed)
    for whole, part in zip(vocabulary.tokens, subset.tokens, strict=True):
        assert len(part) == min(per_step, len(whole))
        assert [t for t in whole if t in part] == list(part)


def test_prompts_whole_and_partial():
    vocabulary = Vocabulary(("a", "b"), (("a cat", "a dog"), ("calm", "angry", "sad")))
    assert vocabulary.prompt([1, 2]) == "a dog, sad"
    assert vocabulary.prompt(np.array([0])) == "a cat"
    assert vocabulary.prompt([]) == ""
    with pytest.raises(ValueError, match="at most 2 indices"):
        vocabulary.prompt([0, 0, 0])
    for bad in (3, -1):
        with pytest.raises(ValueError, match=r"0\.\.2 for step 1 \(b\), got"):
            vocabulary.prompt([0, bad])
    with pytest.raises(TypeError, match="integers"):
        vocabulary.prompt([0.5])


def test_fingerprint_changes_with_names_tokens_and_their_order():
    base = Vocabulary(("a", "b"), (("x", "y"), ("z",)))
    others = [
        Vocabulary(("a", "c"), (("x", "y"), ("z",))),
        Vocabulary(("a", "b"), (("y", "x"), ("z",))),
        Vocabulary(("a", "b"), (("x",), ("y", "z"))),
        Vocabulary(("b", "a"), (("x", "y"), ("z",))),
    ]
    prints = {v.fingerprint for v in [base, *others]}
    assert len(prints) == 5
    assert all(len(p) == 64 for p in prints)


def test_every_line_end_ends_a_token_and_spaces_are_folded(folder):
    path = folder(a=b"\xef\xbb\xbfred  car \r\n\tblue car\r\n", b="café\n")
    assert load_vocabulary(path).tokens == (("red car", "blue car"), ("café",))
    for file in path.iterdir():
        file.unlink()
    path = folder(cr="one\rtwo\r", crlf="one\r\ntwo", lf="one\ntwo\n", mixed="one\r\ntwo\rthree\nfour")
    assert load_vocabulary(path).tokens == (("one", "two"),) * 3 + (("one", "two", "three", "four"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"a\.txt, got an empty file"),
        ("one\n\ntwo\n", r"a\.txt, line 2, got an empty line"),
        ("Red car\nx\nred   CAR\n", r"a\.txt, got 'red CAR' at line 3 and already at line 1"),
        (b"fine\ncaf\xe9\n", r"UTF-8 text in .*a\.txt, got byte 0xe9 at line 2"),
        ("fine\nbad \x1b[31mred\n", r"a\.txt, line 2, got U\+001B .* as character 5 of 'bad \\x1b\[31mred'.*remove it"),
        ("\u202eevil", r"got U\+202E \(RIGHT-TO-LEFT OVERRIDE\)"),
        ("a\u2028b", r"got U\+2028"),
        ("fog" + "".join(chr(0xE0000 + ord(letter)) for letter in "obey"), r"line 1, got U\+E006F \(TAG LATIN"),
        ("fog\n\u200b\u200d", r"line 2, got only characters that can't be seen \(U\+200B, U\+200D\)"),
        ("fog\nfog\ufeff", r"line 2 and already at line 1"),
        ("fog\nf\u00adog", r"line 2 and already at line 1"),
        ("\u2602\n\u2602\ufe0f", r"line 2 and already at line 1"),
        ("x\n" + "m" * 1_000_000, r"line 2, got 1,000,000 characters, beginning 'mmm.*at most 1,000"),
        ("Cafe\u0301\ncafé", r"got 'café' at line 2 and already at line 1"),
    ],
)
def test_what_cannot_be_a_token_is_refused_with_its_line(folder, content, message):
    with pytest.raises(ValueError, match=message):
        load_vocabulary(folder(a=content, b="fine"))


def test_the_longest_token_passes_and_every_script_is_a_token(folder):
    lines = ["x" * 1000, "Straßenlärm, früh", "雨の夜", "ضوء خافت ٪", "בוקר", "naïve", "a 😀 b", "हिन्दी"]  # noqa: RUF001
    assert load_vocabulary(folder(a="\n".join(lines))).tokens == (tuple(lines),)


def test_unicode_is_composed_in_tokens_names_and_orders(tmp_path):
    (tmp_path / "ambie\u0301nce.txt").write_text("cafe\u0301 creme\n", encoding="utf-8")
    vocabulary = load_vocabulary(tmp_path, order=["ambie\u0301nce.txt"])
    assert vocabulary == Vocabulary(("ambiénce",), (("café creme",),))


# what people write in the scripts and emoji that need more than letters
TEXTS = [
    "می\u200cخواهم", "کتاب\u200cهای قدیمی", "क्षत्रिय", "क्\u200dष", "हिन्दी में", "น้ำตก", "ตา\u200bกลม", "ភាសា\u200bខ្មែរ",
    "தமிழ்", "👩\u200d💻", "👨\u200d👩\u200d👧", "❤\ufe0f", "❤\ufe0f\u200d🔥", "👍🏽", "🇩🇪",
    "🏳\ufe0f\u200d🌈", "1\ufe0f\u20e3",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "שלום\u200f!", "x\u0302\u0323",
    "葛\U000e0100", "Auf\u200clage", "Donau\u00addampfer", "zero\u200bwidth",
]  # fmt: skip


def test_joiners_marks_and_emoji_are_text(tmp_path):
    composed = [normalise(text) for text in TEXTS]
    (tmp_path / "a.txt").write_bytes("\n".join(TEXTS).encode())
    assert load_vocabulary(tmp_path).tokens == (tuple(composed),) == Vocabulary(("a",), (tuple(TEXTS),)).tokens
    assert Vocabulary(tuple(TEXTS), (("x",),) * len(TEXTS)).names == tuple(TEXTS)


def test_joiners_tell_words_apart_only_where_they_join():
    assert fold("می\u200cخواهم") != fold("میخواهم") and fold("👩\u200d💻") != fold("👩💻")
    assert fold("क्\u200dष") != fold("क्ष")
    assert fold("sea\u200d fog\u200c") == fold("Sea fog") == fold("\u200dsea \u200b fog")


def test_what_cannot_be_seen_by_itself_is_no_token_and_makes_no_other_one():
    """All of Unicode's formats, fillers and selectors, but the number signs of Arabic and Kaithi, which are drawn."""
    signs = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
    formats = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cf"} - signs
    for character in {*formats, *"\u115f\u1160\u2800\u3164\uffa0\u034f\ufe0f"}:
        assert refusal(character), hex(ord(character))
        assert refusal(f"a{character}b") or fold(f"a{character}b") == "ab", hex(ord(character))
    drawn = {chr(code) for code in range(0x20, 0x3000) if unicodedata.category(chr(code))[0] in "LNPS"}
    assert [character for character in drawn - set("\u115f\u1160\u2800") if refusal(character)] == []


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "a\tb", "a\nb", "\u2066", "x" * 1001, "\udc80"])
def test_a_vocabulary_made_in_code_refuses_them_too(text):
    with pytest.raises(ValueError, match="Expected a readable token at index 1 of step 'a', got"):
        Vocabulary(("a",), (("x", f"y{text}"),))
    with pytest.raises(ValueError, match="Expected a readable name of a step, got"):
        Vocabulary((f"n{text}",), (("x",),))


def test_a_pipe_is_no_token_file(tmp_path):
    os.mkfifo(tmp_path / "x.txt")
    with pytest.raises(FileNotFoundError, match=r"got 'x\.txt' \(not a regular file\)"):
        load_vocabulary(tmp_path)


def test_endings_in_capitals_are_token_files_too(folder, tmp_path):
    (tmp_path / "A.TXT").write_text("x\ny\n")
    assert load_vocabulary(folder(b="z")).sizes == (2, 1)
    (tmp_path / "b.Txt").write_text("w")
    with pytest.raises(ValueError, match=r"one file for the step 'b' in .*, got 'b\.Txt' and 'b\.txt'; rename one"):
        load_vocabulary(tmp_path)


def test_a_dangling_link_is_an_error(folder, tmp_path):
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match=r"at .*b\.txt, got a link to .*gone, which isn't there"):
        load_vocabulary(folder(a="x"))
    (tmp_path / "gone").write_text("y")
    assert load_vocabulary(tmp_path).tokens == (("x",), ("y",))


def test_what_was_ignored_is_named_once(folder, tmp_path, caplog):
    (tmp_path / "notes.md").write_text("")
    (tmp_path / ".hidden.txt").write_text("")
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(FileNotFoundError, match=r"got 'b\.txt' \(a folder\), 'notes\.md'; write one file"):
        load_vocabulary(tmp_path)
    for _ in range(2):
        load_vocabulary(folder(a="x"))
    assert [record.getMessage() for record in caplog.records] == [
        f"Ignored in {tmp_path}: 'b.txt' (a folder), 'notes.md'; every step of a prompt is a file whose name ends in "
        ".txt"
    ]


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_file_loads_as_tokens_that_can_be_shown_or_is_refused(tmp_path_factory, lines, end):
    path = tmp_path_factory.mktemp("any")
    (path / "a.txt").write_bytes(end.join(lines).encode("utf-8", "replace"))
    try:
        step = load_vocabulary(path).tokens[0]
    except ValueError as error:
        assert "a.txt" in str(error)  # noqa: PT017
        return
    assert not any(refusal(token) for token in step)
    assert load_vocabulary(path) == Vocabulary(("a",), (step,))
    (path / "a.txt").write_text("\n".join(step), encoding="utf-8")
    assert load_vocabulary(path).tokens[0] == step


@pytest.mark.parametrize("make", [list, tuple, np.array])
def test_a_vocabulary_of_lists(make, tmp_path):
    steps = {"subject": make(["a lighthouse", "an  old fox "]), "light": make(["at dawn", "by candlelight"])}
    found = Vocabulary.from_lists(steps)
    assert found.names == ("subject", "light") and found.tokens[0] == ("a lighthouse", "an old fox")
    assert Vocabulary.from_lists(list(steps.values())).names == ("step 1", "step 2")
    for number, (name, tokens) in enumerate(steps.items()):
        (tmp_path / f"{number}-{name}.txt").write_text("\n".join(tokens) + "\n")
    assert load_vocabulary(tmp_path).tokens == found.tokens
    assert found.prompt([1, 0]) == "an old fox, at dawn"


@pytest.mark.parametrize(
    ("steps", "error", "said"),
    [
        ({"a": ["x", " X"]}, ValueError, "distinct tokens in step 'a'"),
        ({}, ValueError, "at least one step"),
        ({"a": ["x\ny"]}, ValueError, "readable token at index 0 of step 'a'"),
        ({"a": {"x", "y"}}, TypeError, "tokens of 'a' as a list of strings, got set"),
        ("words", TypeError, "use load_vocabulary"),
        ({1: ["x"]}, ValueError, "name as a non-empty string, got 1"),
    ],
)
def test_lists_that_make_no_vocabulary(steps, error, said):
    with pytest.raises(error, match=said):
        Vocabulary.from_lists(steps)
