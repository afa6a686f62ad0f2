"""Renderers by name, and what the cache makes of any renderer: one that fails for some texts, costs money, is full."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from edpbrl_gym import rendering
from edpbrl_gym._pictures import as_png
from edpbrl_gym.rendering import (
    Drawn,
    NotDrawn,
    Renderer,
    RenderingError,
    load_renderer,
    renderer_needs,
    renderer_options,
)
from edpbrl_gym.rendering.loading import BACK_ENDS, BackEnd

OWN = "tests.rendering.test_loading:Service"


class Service(Renderer):
    """Like a service: without seeds, with a price; refuses one text, has no answer for another, draws few at once."""

    seeded, price = False, 0.25

    def __init__(self, colour: int = 0, *, batch_size: int = 4, most: int = 3) -> None:
        self.name, self.batch_size = "a service", batch_size
        self.colour, self.most = colour, most
        self.asked: list[list[str]] = []
        self.closed = False

    def describe(self):
        return {"model": self.name, "colour": self.colour}

    def draw(self, texts, seeds):
        if len(texts) > self.most:
            raise MemoryError("Expected less at once")
        self.asked.append(list(texts))
        stream = io.BytesIO()
        Image.new("RGB", (8, 8), (self.colour, 0, 0)).save(stream, format="PNG")
        return [
            NotDrawn("no answer") if text == "late" else Drawn(stream.getvalue(), flagged=text == "bad")
            for text in texts
        ]

    def close(self):
        self.closed = True


class Remote(Service):
    """Like a service with an address, a model and a file of its own."""

    def __init__(self, url: str, *, model: str = "", workflow: str | None = None, steps: int = 1) -> None:
        super().__init__()
        self.given = {"url": url, "model": model, "workflow": workflow, "steps": steps}


@pytest.fixture
def rows(monkeypatch):
    """Rows without a source, and with an address."""
    monkeypatch.setitem(BACK_ENDS, "sketches", BackEnd(OWN, None))
    row = BackEnd(OWN.replace("Service", "Remote"), "URL#MODEL", (), None, True, "model", ("workflow",))
    monkeypatch.setitem(BACK_ENDS, "remote", row)


def test_a_text_without_a_picture_costs_the_others_nothing(tmp_path):
    service, seen = Service(), []
    with load_renderer(service, cache_folder=tmp_path) as renderer:
        with pytest.raises(RenderingError, match=r"a service, got none of 1 \(no answer\).*tries these again") as error:
            renderer.render(["a", "late", "bad", "b", "a"], progress=lambda done, total: seen.append((done, total)))
        assert service.asked == [["a", "late"], ["bad", "b"]] and renderer.batch_size == 2  # 4 are too many
        assert seen == [(0, 4), (4, 4)] and renderer.spent == 0.75
        a, late, bad, b, again = error.value.images
        assert late is None and again == a and (bad.flagged, b.flagged) == (True, False)
        with pytest.raises(RenderingError):
            renderer.render(["a", "late"])
        assert service.asked[2:] == [["late"]] and renderer.spent == 0.75
        assert renderer.render(["b", "a"]) == [b, a]
    assert service.closed
    assert '"seeded": false' in b.path.with_name(f"{b.key}.json").read_text()
    other = load_renderer(Service(colour=9), cache_folder=tmp_path).render(["a"])[0]
    assert other.key != a.key and other.png != a.png


def test_a_source_alone_is_a_text_to_image_model():
    spec = "stabilityai/sd-turbo"
    assert renderer_options(spec) == renderer_options(f"diffusers:{spec}")
    assert {"device", "batch_size", "steps", "negative"} <= set(renderer_options(spec))
    assert "model" not in renderer_options(spec)
    assert [need.package for need in renderer_needs(spec, "pictures")] == ["diffusers", "torch", "transformers", "PIL"]
    assert renderer_needs(OWN, "pictures") == [] and renderer_options(OWN) == ["colour", "batch_size", "most"]


def test_a_source_may_be_relative_to_a_folder(tmp_path):
    (tmp_path / "model").mkdir()
    for given, name in (("model", str(tmp_path / "model")), ("owner/name", "owner/name")):
        renderer = load_renderer(given, cache_folder=tmp_path, beside=tmp_path)
        assert renderer.describe()["model"] == renderer.renderer.name == name


def test_a_renderer_may_have_no_source(tmp_path, rows):
    for spec in ("sketches", "Sketches"):
        assert load_renderer(spec, cache_folder=tmp_path, colour=5).renderer.colour == 5
    assert renderer_options("sketches") == ["colour", "batch_size", "most"]
    assert renderer_needs("sketches", "pictures") == []


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("http://a:1/v1", {"url": "http://a:1/v1"}),
        ("http://a:1/v1#own/model:2", {"url": "http://a:1/v1", "model": "own/model:2"}),
        ("http://a?workflow=a%20b.json&steps=3", {"url": "http://a", "workflow": "a b.json", "steps": 3}),
        ("https://a/v1?api-version=2024-10-21&steps=3#7", {"url": "https://a/v1?api-version=2024-10-21", "model": "7"}),
    ],
)
def test_options_may_be_in_the_text_of_an_address(tmp_path, rows, text, given):
    made = load_renderer(f"remote:{text}", cache_folder=tmp_path).renderer.given
    assert {name: made[name] for name in given} == given and made["steps"] == (3 if "steps" in text else 1)
    (tmp_path / "a b.json").touch()
    made = load_renderer(f"remote:{text}", cache_folder=tmp_path, beside=tmp_path).renderer.given
    assert made["workflow"] == (str(tmp_path / "a b.json") if "workflow" in text else None)
    assert "url" not in renderer_options(f"remote:{text}")
    assert ("model" in renderer_options(f"remote:{text}")) == ("#" not in text)


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        ("sketch", {}, "got 'sketch'; did you mean 'sketches'"),
        ("sketches:abc", {}, "got 'sketches:abc'; write 'sketches'"),
        ("remote", {}, "got 'remote'; write 'remote:SOURCE' .URL#MODEL"),
        ("remotes:http://u:pw@a?key=1", {}, r"got 'remotes:http://\*\*\*@a'; did you mean 'remote'"),
        ("remot:model", {}, "got 'remot:model'; did you mean 'remote'"),
        ("ftp2:abc/def", {}, "got 'ftp2:abc/def'$"),
        ("remote:http://a?model=b#c", {}, "without a '#' part, got 'c'"),
        ("remote:http://a#c", {"model": "b"}, "got 'model'; its options: workflow, steps"),
    ],
)
def test_an_unknown_kind_is_explained_in_one_line(tmp_path, rows, spec, options, said):
    with pytest.raises((ValueError, TypeError), match=said) as error:
        load_renderer(spec, cache_folder=tmp_path, **options)
    assert "\n" not in str(error.value) and "pw" not in str(error.value)


@pytest.mark.parametrize(
    ("spec", "options", "error", "said"),
    [
        ("", {}, ValueError, "'diffusers:SOURCE'.*'package.module:Class'.*got ''"),
        (None, {}, ValueError, "got None"),
        ("diffusers:", {}, ValueError, "Expected model as a hub id or a folder, got ''"),
        ("a/b", {"step": 3}, TypeError, "renderer 'a/b', got 'step'; its options: device, .*steps"),
        ("a/b", {"model": "c"}, TypeError, "got 'model'"),
        (OWN, {"steps": 3}, TypeError, "got 'steps'; its options: colour, batch_size, most"),
        ("tests.rendering.test_loading:OWN", {}, TypeError, "subclass of edpbrl_gym.rendering.base.Renderer, got"),
        ("nowhere:Class", {}, ImportError, "importable module 'nowhere' for the renderer"),
        (Service(), {"colour": 3}, TypeError, "got an instance; name it"),
    ],
)
def test_a_wrong_renderer_is_explained(tmp_path, spec, options, error, said):
    with pytest.raises(error, match=said):
        load_renderer(spec, cache_folder=tmp_path, **options)


def test_a_renderer_that_loses_a_text_is_refused(tmp_path):
    service = Service()
    service.draw = lambda texts, seeds: []
    with pytest.raises(ValueError, match="an image or an error for each of 2 prompts from a service, got 0"):
        load_renderer(service, cache_folder=tmp_path).render(["a", "b"])


class Threads(rendering.Service):
    """A service without a server: each text by itself, two at once."""

    name, batch_size = "threads", 2

    def describe(self):
        return {"model": self.name}

    def draw_one(self, text, seed, stop):
        if text == "late":
            raise NotDrawn("no answer")
        if text == "broken":
            raise ZeroDivisionError("it fell over")
        stream = io.BytesIO()
        Image.new("RGB", (8, 8), (seed, 0, 0)).save(stream, format="PNG")
        return Drawn(stream.getvalue()[: -20 if text == "cut" else None])


def test_a_service_of_one_s_own_draws_each_by_itself(tmp_path):
    with pytest.raises(RenderingError, match=r"none of 2 \(no answer.*") as error:
        load_renderer(Threads(), cache_folder=tmp_path).render(["a", "late", "cut", "b"], seed=[1, 2, 3, 4])
    assert [image and image.load().getpixel((0, 0))[0] for image in error.value.images] == [1, None, None, 4]
    assert "that is cut" in str(error.value.reasons[2])
    with pytest.raises(ZeroDivisionError, match="it fell over"):
        load_renderer(Threads(), cache_folder=tmp_path).render(["c", "broken", "d"])
    drawn = Threads().draw(["a", "late"], [1, 2])
    assert isinstance(drawn[0], Drawn) and str(drawn[1]) == "no answer"


def test_what_is_no_picture_is_one_text_s_error_of_any_renderer(tmp_path):
    service = Service()
    good = service.draw(["a"], [0])[0]
    service.draw = lambda texts, seeds: [good if text == "a" else Drawn(b"<svg/>") for text in texts]
    with pytest.raises(RenderingError, match="no picture came: it can't be read") as error:
        load_renderer(service, cache_folder=tmp_path).render(["a", "b"])
    assert error.value.images[0] is not None
    service.size = (8, 9)
    with pytest.raises(RenderingError, match="Expected a picture of 8 x 9 pixels, got one of 8 x 8"):
        load_renderer(service, cache_folder=tmp_path / "other").render(["a"])


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "animation"])
def test_a_picture_becomes_a_png_in_rgb_as_it_is_read(kind):
    """What ``read_picture`` makes of other kinds is in tests/pictures/test_pool.py."""
    image, stream = Image.new("RGBA" if kind == "RGBA" else "RGB", (6, 4), (200, 40, 90)), io.BytesIO()
    if kind == "RGBA":
        image.putalpha(0)
    more = {"save_all": True, "append_images": [Image.new("RGB", (6, 4))]} if kind == "animation" else {}
    image.save(stream, format="PNG", **more)
    png, size = as_png(stream.getvalue())
    read = Image.open(io.BytesIO(png))
    assert (read.format, read.mode, read.size, size) == ("PNG", "RGB", (6, 4), (6, 4))
    assert getattr(read, "n_frames", 1) == 1 and (png == stream.getvalue()) == (kind == "RGB")
    assert read.getpixel((0, 0)) == ((255, 255, 255) if kind == "RGBA" else (200, 40, 90))
