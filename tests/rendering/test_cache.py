"""The image cache and the key of an image: what is served is whole, and the key is what decides an image."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.rendering import ImageCache, RenderSettings, image_key
from edpbrl_gym.rendering.cache import NewImage, encode_png
from edpbrl_gym.rendering.settings import MAX_SEED, check_seed

PRIVATE = "a very private prompt"


def png(seed: int = 0, size: int = 16) -> bytes:
    return encode_png(np.random.default_rng(seed).random((size, size, 3)).astype(np.float32))


def key_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def put(cache: ImageCache, key: str, data: bytes, **changes):
    image = NewImage(key, data, **{"prompt": PRIVATE, "seed": 3, "flagged": False, "cut": False, **changes})
    return cache.put_all([image], {})[0]


def test_what_is_put_comes_back_byte_for_byte(tmp_path):
    data, key = png(), key_of("one")
    assert ImageCache(tmp_path / "new").get(key) is None
    written = put(ImageCache(tmp_path / "new"), key, data, flagged=True, cut=True)
    read = ImageCache(tmp_path / "new").get(key)
    assert read == written and read.png == data and read.flagged and read.cut
    assert (read.prompt, read.seed, read.width, read.height) == (PRIVATE, 3, 16, 16)
    assert read.load().size == (16, 16) and read.load().mode == "RGB"
    assert PRIVATE not in repr(read)
    assert ImageCache(tmp_path / "new").get(key_of("two")) is None


def test_a_cut_or_changed_file_is_never_served(tmp_path, caplog):
    cache, data, key = ImageCache(tmp_path), png(), key_of("one")
    image = put(cache, key, data)
    record = image.path.with_name(f"{key}.json")
    whole = record.read_bytes()
    caplog.set_level(logging.DEBUG)
    for size in [*range(0, len(data), 37), len(data) - 1]:
        image.path.write_bytes(data[:size])
        assert cache.get(key) is None
        with pytest.raises(OSError, match="render it again"):
            image.load()
    changed = bytearray(data)
    changed[-20] ^= 1
    image.path.write_bytes(bytes(changed))
    assert cache.get(key) is None
    image.path.write_bytes(data)
    for size in range(0, len(whole), 11):
        record.write_bytes(whole[:size])
        assert cache.get(key) is None
    for wrong in ({"key": key_of("two")}, {"flagged": "no"}, {"sha256": key_of("x")}, {"sha256": "../.."}):
        record.write_text(json.dumps({**json.loads(whole), **wrong}))
        assert cache.get(key) is None
    record.write_bytes(b"[1, 2]")
    assert cache.get(key) is None
    record.write_bytes(whole)
    image.path.unlink()
    assert cache.get(key) is None
    with pytest.raises(FileNotFoundError, match="found none; render it again"):
        _ = image.png
    assert "is damaged" in caplog.text and PRIVATE not in caplog.text
    put(cache, key, data)
    assert cache.get(key).png == data


def test_two_writers_of_a_key_do_not_spoil_each_others_images(tmp_path, monkeypatch):
    """Batches of different sizes round differently: both pictures are right, and each writer keeps its own."""
    key, replaced, other = key_of("one"), os.replace, []

    def other_writes_in_between(source, target):
        replaced(source, target)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replaced)
            if not other:
                other.append(put(ImageCache(tmp_path), key, png(2)))

    monkeypatch.setattr(os, "replace", other_writes_in_between)
    mine = put(ImageCache(tmp_path), key, png(1))
    assert len(other) == 1 and mine.png == png(1) and other[0].png == png(2)
    assert ImageCache(tmp_path).get(key) == mine  # written last


BATCHES = """
import hashlib, sys
import numpy as np
from edpbrl_gym.rendering.cache import ImageCache, NewImage, encode_png
cache = ImageCache(sys.argv[1])
for number in range(100_000):
    if number == 2:
        print("ready", flush=True)
    keys = [hashlib.sha256(f"{sys.argv[2]}/{number}/{i}".encode()).hexdigest() for i in range(4)]
    png = encode_png(np.full((8, 8, 3), 0.5, np.float32))
    cache.put_all([NewImage(key, png, f"{sys.argv[2]}/{number}", 0, False, False) for key in keys], {})
"""


def test_a_batch_is_there_as_a_whole_or_not_at_all_wherever_its_writer_was_killed(tmp_path):
    delays = random.Random(2000)
    round_number = cut_short = 0
    while round_number < 3 or not cut_short:  # a test that times out has never cut a batch short
        round_number += 1
        writer = subprocess.Popen(
            [sys.executable, "-c", BATCHES, str(tmp_path), str(round_number)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout.readline() == "ready\n"
        time.sleep(delays.uniform(0.01, 0.2))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        cut_short += any((tmp_path / "batches").glob("*.json"))
        cache = ImageCache(tmp_path)
        cache.prepare()
        assert not list((tmp_path / "batches").iterdir())
        found = Counter(cache.get(path.stem).prompt for path in tmp_path.glob("*/*.json"))
        assert set(found.values()) == {4} and len(found) >= 2


def test_unusable_folders_and_keys(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Expected a cache folder for images that can be.*EDPBRL_CACHE"):
        put(ImageCache(tmp_path / "file"), key_of("one"), png())
    for use in (lambda cache: cache.get(key_of("one")), ImageCache.prepare):
        with pytest.raises(OSError, match=r"at .*file, got (Not a directory|File exists); choose another folder"):
            use(ImageCache(tmp_path / "file"))
    for key in ("", "../../etc", key_of("one").upper(), key_of("one")[:-1]):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            ImageCache(tmp_path).get(key)
    with pytest.raises(ValueError, match="Expected the bytes of an image"):
        put(ImageCache(tmp_path), key_of("one"), b"no image")
    assert ImageCache(tmp_path).get(key_of("one")) is None


def test_the_key_is_what_decides_the_image_and_nothing_else():
    settings = RenderSettings(model="a/b", steps=50, guidance=7.5)
    key = image_key("a gate", 0, settings.identity("f" * 64))
    assert key == image_key(
        "a gate", 0, replace(settings, model="c/d", variant="fp16", revision="x").identity("f" * 64)
    )
    others = [
        image_key("a gate ", 0, settings.identity("f" * 64)),
        image_key("a gate", 1, settings.identity("f" * 64)),
        image_key("a gate", 0, settings.identity("e" * 64)),
        *(
            image_key("a gate", 0, replace(settings, **change).identity("f" * 64))
            for change in (
                {"steps": 4},
                {"guidance": 0},
                {"height": 64},
                {"width": 64},
                {"negative": "dark"},
                {"dtype": "float16"},
            )
        ),
    ]
    assert len({key, *others}) == len(others) + 1
    assert key == image_key(
        "a gate", 0, replace(settings, guidance=np.float64(7.5), steps=np.int64(50)).identity("f" * 64)
    )
    # pinned: a changed key would silently render every image again
    assert key == "c31352f33b9265b3d74f71a240f8d89e1fa35f13283147a3fe3df1ccba04aef1"


def test_settings_are_json_and_checked():
    settings = RenderSettings(model="stabilityai/sd-turbo", steps=1, guidance=0, dtype="float16")
    assert RenderSettings(**json.loads(json.dumps(settings.as_dict()))) == settings
    assert settings.guidance == 0.0 and isinstance(settings.guidance, float)
    for wrong, text in (
        ({"model": " "}, "hub id or a folder"),
        ({"steps": 0}, "steps >= 1"),
        ({"guidance": float("nan")}, "finite guidance"),
        ({"dtype": "int8"}, "'float32', 'float16', 'bfloat16'"),
        ({"height": 100}, "multiple of 8"),
    ):
        with pytest.raises(ValueError, match=text):
            RenderSettings(**{"model": "a/b", **wrong})
    with pytest.raises(TypeError, match="Expected steps"):
        RenderSettings(model="a/b", steps=2.5)
    assert check_seed(MAX_SEED) == MAX_SEED
    for wrong in (-1, MAX_SEED + 1):
        with pytest.raises(ValueError, match="seed"):
            check_seed(wrong)
