"""Pictures over HTTP: servers that misbehave, one text at a time. No wrong picture under a prompt, no picture paid
twice, one clear line each."""

from __future__ import annotations

import base64
import email.utils
import io
import json
import time
import zlib
from pathlib import Path

import pytest

pytest.importorskip("httpx2")

from edpbrl_gym._addresses import OPENAI_URL
from edpbrl_gym.rendering import CachedRenderer, RenderingError, load_renderer, renderer_options
from edpbrl_gym.workers import LocalProcesses
from tests.helpers.picture_servers import (
    SERVERS,
    A1111Server,
    OpenAIServer,
    Reply,
    colour,
    drip,
    picture,
)

BAD, GOOD = "a bad fox, on ice", "a good hen, in hay"
EVERY = pytest.mark.parametrize("server", SERVERS, ids=lambda one: one.kind)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """What the client chooses itself; what a server announces is waited for."""
    for module in ("edpbrl_gym._http.waits", "edpbrl_gym.rendering.services.http"):
        monkeypatch.setattr(f"{module}.backoff", lambda *given: 0.01)


def renderer(server, folder, **options) -> CachedRenderer:
    spec = options.pop("spec", server.spec)
    return load_renderer(spec, cache_folder=folder, **{"batch_size": 2, "timeout": 5.0, "max_retries": 2} | options)


def in_cache(folder: Path) -> dict[str, bytes]:
    """Text -> PNG of all pictures on disk."""
    records = [json.loads(path.read_text()) for path in folder.glob("??/*.json")]
    return {one["prompt"]: (folder / one["key"][:2] / f"{one['key']}-{one['sha256'][:16]}.png").read_bytes()
            for one in records}  # fmt: skip


def check_cache(folder: Path, seed: int = 0) -> None:
    """No picture is under another prompt."""
    from PIL import Image

    for text, png in in_cache(folder).items():
        pixel = Image.open(io.BytesIO(png)).getpixel((0, 0))
        assert max(abs(a - b) for a, b in zip(pixel, colour(text, seed), strict=True)) <= 2, text


def one_line(error: BaseException) -> str:
    said = str(error)
    assert "\n" not in said and len(said) < 450 and BAD not in said and "fox, on" not in said, said
    return said


# -- behaviours of any server ------------------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def bomb(call) -> bytes:
    """A small PNG that says that it has 3.6 billion pixels."""
    head = chunk(b"IHDR", (60_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0]))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def damaged(call) -> bytes:
    png = bytearray(call.png())
    png[png.index(b"IDAT") + 8] ^= 255
    return bytes(png)


def cut_json(call):
    return Reply(200, json.dumps(call.good()).encode()[:-20], {"Content-Type": "application/json"})


def html(call):
    return Reply(200, b"<!doctype html><html><body>my interface</body></html>", {"Content-Type": "text/html"})


def half(call):
    """The right answer, of which the connection loses the end."""
    body = json.dumps(call.good()).encode()
    return [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body[:-9]]


def limited(**headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda call: Reply(429, {"error": {"message": "slow down"}}, given)


def on_a_date(call):
    now = time.time()
    moment = {"Date": email.utils.formatdate(now - 3600, usegmt=True)}  # its clock is wrong
    return Reply(429, {}, moment | {"Retry-After": email.utils.formatdate(now - 3599, usegmt=True)})


def status(number, **error):
    return lambda call: Reply(number, {"error": {"message": "it failed", **error}} if error else {"detail": "no"})


# after one of these, the same text is drawn
PASSING = {
    "429, seconds": limited(Retry_After="0.2"),
    "429, a date": on_a_date,
    "429, milliseconds": limited(retry_after_ms="50"),
    "429, a reset": limited(x_ratelimit_remaining_requests="0", x_ratelimit_reset_requests="120ms"),
    "429, alone": limited(),
    "500": status(500),
    "503, Retry-After": lambda call: Reply(503, b"busy", {"Retry-After": "0.1"}),
    "529": status(529),
    "409": status(409),
    "closed before the answer": lambda call: [],
    "closed in the head": lambda call: [b"HTTP/1.1 200 OK\r\nContent-Le"],
    "no HTTP": lambda call: [b"hello\r\n\r\n"],
    "502": status(502),
}
# one of these is what the text gets, and what the line says
WITHOUT_PICTURE = {
    "cut PNG": (lambda call: Reply(200, call.good(call.png()[:-30])), "a whole PNG, got .* that is cut"),
    "PNG without its end": (lambda call: Reply(200, call.good(call.png()[:-12])), "that is cut"),
    "damaged PNG": (lambda call: Reply(200, call.good(damaged(call))), "one with damage at byte"),
    "cut JPEG": (lambda call: Reply(200, call.good(call.png(form="JPEG")[:-80])), "no picture came: .*Truncated"),
    "HTML": (html, r"Expected JSON from http://127.*, got a page \(HTML\); check the address"),
    "cut JSON": (cut_json, "Expected JSON .* bytes that are none"),
    "a list": (lambda call: Reply(200, [call.good()]), "Expected JSON"),
    "deep JSON": (lambda call: Reply(200, b"[" * 200_000), "Expected JSON"),
    "nothing": (lambda call: Reply(200, b""), "got 0 bytes that are none"),
    "no picture": (lambda call: Reply(200, call.good(pictures=0)), "one picture in the reply, got none"),
    "two pictures": (lambda call: Reply(200, call.good(pictures=2)), "one picture in the reply, got 2"),
    "wrong size": (lambda call: Reply(200, call.good(call.png(size=(16, 24)))), "24 x 16 pixels, got one of 16 x 24"),
    "a text as picture": (lambda call: Reply(200, call.good(b"sorry")), "no picture came: .*no PNG, JPEG"),
    "too many pixels": (lambda call: Reply(200, call.good(bomb(call))), "no picture came: .*pixels"),
    "50 MB": (lambda call: Reply(200, b" " * 50_000_000), "at most 40,000,000 bytes"),
    "400": (status(400, code="invalid_value", param="size"), "answered 400; .*invalid_value, size: it failed"),
    "422": (lambda call: Reply(422, {"detail": [{"loc": ["body", "steps"], "msg": "too many"}]}), "422; .*too many"),
    "200 with an error": (lambda call: Reply(200, {"error": {"message": "no memory"}}), "no memory"),
    "an echo": (lambda call: Reply(400, {"error": {"message": f"bad prompt: {call.text}!"}}), "bad .*\\*\\*\\*"),
    "500 again and again": (status(500, message="CUDA is lost"), "500; .*CUDA is lost, 3 times in a row"),
    "drip": (lambda call: drip(), r"no complete answer \(TimeoutError\), 3 times"),
}  # fmt: skip
# no text would get a picture
ENDS = {
    "404 of the route": (status(404), "to draw pictures, it answered 404; .*check the address"),
    "405": (status(405), "to draw pictures, it answered 405"),
    "401": (status(401), "to let this program in, it answered 401.*api_key_variable"),
    "no credit": (status(429, code="insufficient_quota"), "to have something left .*add credit"),
    "redirect": (lambda call: Reply(307, b"", {"Location": "http://127.0.0.1:1/v1"}), "redirects elsewhere .307."),
    "a limit for hours": (limited(Retry_After="7200"), "take requests again within 60 min .*another 2 h"),
}


@EVERY
@pytest.mark.parametrize("name", PASSING)
def test_an_error_that_passes_costs_no_picture(tmp_path, server, name):
    def play(call):
        first = call.text == BAD and not any(one.text == BAD for one in call.server.calls[: call.number])
        return PASSING[name](call) if first else None

    with server(play) as served:
        images = renderer(served, tmp_path).render([BAD, GOOD])
        assert [image.load().getpixel((0, 0)) for image in images] == [colour(BAD), colour(GOOD)]
        assert set(served.paid.values()) == {1} and len(served.calls) == 3
    check_cache(tmp_path)


@EVERY
@pytest.mark.parametrize("name", WITHOUT_PICTURE)
def test_what_is_no_picture_is_one_text_s_error(tmp_path, server, name):
    play, said = WITHOUT_PICTURE[name]
    with server(lambda call: play(call) if call.text == BAD else None) as served:
        made = renderer(served, tmp_path, height=16, width=24, timeout=0.3 if name == "drip" else 5.0, price=0.0)
        with pytest.raises(RenderingError, match=said) as error:
            made.render([BAD, GOOD])
        one_line(error.value)
        assert error.value.images[0] is None and error.value.images[1].load().getpixel((0, 0)) == colour(GOOD)
        assert set(in_cache(tmp_path)) == {GOOD} and served.paid[GOOD, 0] == 1 and served.paid[BAD, 0] <= 2
        asked = sum(one.text == BAD for one in served.calls)
        assert asked == (3 if name in ("500 again and again", "drip") else 1)
        served.play = None
        assert made.render([BAD])[0].load().getpixel((0, 0)) == colour(BAD)  # the same call tries again
    check_cache(tmp_path)


@EVERY
@pytest.mark.parametrize("name", ENDS)
def test_what_no_text_would_survive_ends_the_work_in_one_line(tmp_path, server, name):
    play, said = ENDS[name]
    with server(play) as served:
        with pytest.raises(ConnectionError, match=said) as error:
            renderer(served, tmp_path, batch_size=1).render([BAD, GOOD, "three", "four"])
        one_line(error.value)
        assert len(served.calls) == 1 and not in_cache(tmp_path)


@EVERY
def test_nobody_there(tmp_path, server):
    with server() as served:
        spec = served.spec
    with pytest.raises(ConnectionError, match="a server at http://127.0.0.1.*start it") as error:
        renderer(served, tmp_path, spec=spec if "#" in spec else f"{spec}#dream").render([BAD])
    one_line(error.value)


@EVERY
@pytest.mark.parametrize("name", ["half", "closed", "drip", "502", "504"])
def test_what_may_have_been_paid_is_not_asked_for_again_by_itself(tmp_path, monkeypatch, server, name):
    """The next call does, with the same Idempotency-Key."""

    def play(call):
        if call.text == GOOD:
            return None
        call.server.paid[call.text, 0] += 1
        return {"half": half, "closed": lambda call: [], "drip": lambda call: drip()}.get(
            name, lambda call: Reply(int(name), b"")
        )(call)

    monkeypatch.setenv("MY_KEY", "sk-0123")
    for paid in ({"price": 0.04}, {"api_key_variable": "MY_KEY"}):
        with server(play) as served:
            made = renderer(served, tmp_path, timeout=0.3, spec=served.spec.partition("#")[0] + "#dream", **paid)
            made.render([GOOD])  # so that there may be a connection that is kept
            for _ in range(2):
                with pytest.raises(RenderingError, match="may have been drawn and billed.*the same call does") as error:
                    made.render([BAD])
                assert "sk-0123" not in one_line(error.value)
            first, second = (call.headers["idempotency-key"] for call in served.calls if call.text == BAD)
            assert first == second


@EVERY
def test_five_texts_in_a_row_without_a_picture_end_the_work(tmp_path, server):
    """So that nobody pays for two hundred pictures of the wrong size."""
    with server(lambda call: Reply(200, call.good(call.png(size=(8, 8))))) as served:
        made = renderer(
            served, tmp_path, height=16, width=16, batch_size=1, spec=f"{served.spec.partition('#')[0]}#dream"
        )
        with pytest.raises(
            ConnectionError, match="the last 5 texts had none .*16 x 16 pixels, got one of 8 x 8"
        ) as error:
            made.render([f"{BAD} {index}" for index in range(50)])
        one_line(error.value)
        assert len(served.calls) <= 6


@EVERY
def test_a_refusal_is_a_flagged_picture_that_is_never_asked_for_again(tmp_path, server):
    refusals = {"no": "moderation_blocked", "never": "content_policy_violation"}

    def play(call):
        code = refusals.get(call.text)
        return code and Reply(400, {"error": {"code": code, "message": "rejected by the safety system"}})

    with server(play) as served:
        for _ in range(2):
            images = renderer(served, tmp_path, height=16, width=24).render(["no", GOOD, "never"])
            assert [image.flagged for image in images] == [True, False, True]
            assert images[0].load().getpixel((0, 0)) == (0, 0, 0) and (images[0].width, images[0].height) == (24, 16)
        assert len(served.calls) == 3


@EVERY
@pytest.mark.parametrize("form", ["JPEG", "WEBP"])
def test_other_formats_become_png(tmp_path, server, form):
    with server(lambda call: Reply(200, call.good(call.png(form=form)))) as served:
        [image] = renderer(served, tmp_path).render([GOOD])
        assert image.png.startswith(b"\x89PNG") and image.load().mode == "RGB"
    check_cache(tmp_path)


@EVERY
def test_texts_in_a_picture_are_not_kept(tmp_path, server):
    def play(call):
        png = call.png()
        return Reply(200, call.good(png[:33] + chunk(b"tEXt", b"parameters\0a secret prompt") + png[33:]))

    with server(play) as served:
        [image] = renderer(served, tmp_path).render([GOOD])
        assert image.png == picture(GOOD)


@EVERY
def test_several_are_drawn_at_once_and_one_slow_picture_holds_up_nobody(tmp_path, server):
    import threading

    others = threading.Semaphore(0)

    def play(call):
        if call.text == "slow":
            for _ in range(7):  # only when all others have been drawn
                assert others.acquire(timeout=10)
        else:
            others.release()

    texts = ["slow", *(f"text {index}" for index in range(7))]
    with server(play) as served:
        seen, known = [], {}
        made = renderer(served, tmp_path, batch_size=3)
        made.render(texts[3:5])
        images = made.render([*texts, "slow"], progress=lambda done, total: seen.append((done, total)),
                             each=known.setdefault)  # fmt: skip
        assert seen == [(done, 8) for done in range(2, 9)] and 2 <= served.most_at_once <= 3 and made.asked == 8
        assert [known[index] for index in range(9)] == images and list(known)[:2] == [3, 4]
        assert list(known).index(0) > 4
    check_cache(tmp_path)


@EVERY
@pytest.mark.parametrize("where", ["progress", "each"])
def test_what_is_under_way_is_kept_where_the_caller_fails(tmp_path, server, where):
    """Also by Ctrl-C in a callback."""

    def fail(*given):
        if len(served.calls) > 4:
            raise KeyboardInterrupt

    with server(lambda call: time.sleep(0.02)) as served:
        made = renderer(served, tmp_path, batch_size=3)
        with pytest.raises(KeyboardInterrupt):
            made.render([f"text {index}" for index in range(30)], **{where: fail})
        assert 5 <= sum(served.paid.values()) == len(in_cache(tmp_path)) < 12
    check_cache(tmp_path)


@EVERY
def test_workers_draw_each_picture_once(tmp_path, server):
    with server() as served:
        made = renderer(served, tmp_path, executor=LocalProcesses(2), price=0.5)
        images = made.render([f"text {index}" for index in range(7)])
        assert [image.load().getpixel((0, 0)) for image in images] == [colour(image.prompt) for image in images]
        assert set(served.paid.values()) == {1} and len(served.calls) == 7 and made.spent == 3.5


@EVERY
def test_a_budget_of_pictures_is_kept_to(tmp_path, server):
    texts = [f"text {index}" for index in range(9)]
    with server() as served:
        made = renderer(served, tmp_path, budget=4, price=0.25)
        with pytest.raises(RenderingError, match=r"got none of 5 \(the budget of 4 new images is used up") as error:
            made.render(texts)
        assert sum(image is not None for image in error.value.images) == 4 == sum(served.paid.values())
        with pytest.raises(RenderingError, match="none of 5"):
            made.render(texts)
        assert len(made.render(texts[:4])) == 4 and made.spent == 1.0 and made.asked == 4 == len(served.calls)
        renderer(served, tmp_path, budget=5).render(texts)
        assert set(served.paid.values()) == {1} and len(served.calls) == 9
    check_cache(tmp_path)


@EVERY
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"height": 16}, "height and width, or none of them"),
        ({"batch_size": 0}, "batch_size"),
        ({"timeout": 0}, "timeout"),
        ({"price": -1}, "price"),
        ({"steps": 0}, "steps"),
        ({"extra": "[1]"}, "extra as a JSON object"),
        ({"extra": "{cfg: 1}"}, "extra as a JSON object"),
        ({"api_key_variable": "sk-abc"}, "api_key_variable as the name of an environment variable"),
        ({"api_key_variable": "NOT_SET_HERE"}, "key of the endpoint in the environment variable NOT_SET_HERE"),
        ({"spec": "http://u:pw@127.0.0.1:1/v1#m"}, "without a password"),
        ({"spec": "http://127.0.0.1:1/v1?api_key=sk-12345678#m"}, "without a key among its parameters"),
        ({"spec": "ftp://127.0.0.1/v1#m"}, "http or https address"),
        ({"spec": "127.0.0.1:8000#m"}, "http or https address"),
    ],
)
def test_a_wrong_setting_is_explained(tmp_path, server, given, said):
    options = {"spec": "http://127.0.0.1:1/v1#m"} | given
    with pytest.raises((ValueError, TypeError), match=said) as error:
        load_renderer(f"{server.kind}:{options.pop('spec')}", cache_folder=tmp_path, **options)
    assert "pw" not in one_line(error.value) and "sk-" not in str(error.value)


def test_prompts_without_encryption_to_other_machines_warn(tmp_path):
    with pytest.warns(UserWarning, match="Prompts go to http://192.0.2.1/v1 without encryption"):
        load_renderer("openai:http://192.0.2.1/v1#m", cache_folder=tmp_path)


# -- the images endpoint of OpenAI -------------------------------------------------------------------------------------


def test_all_settings_are_sent_and_part_of_the_key(tmp_path):
    with OpenAIServer() as server:
        options = {"height": 16, "width": 24, "steps": 4, "guidance": 1.5, "negative": "rain", "quality": "low",
                   "extra": '{"true_cfg_scale": 4, "prompt": "a wolf"}', "seeded": True}  # fmt: skip
        made = renderer(server, tmp_path, **options)
        [image] = made.render([GOOD], seed=7)
        assert server.calls[0].document == {
            "model": "flux", "prompt": GOOD, "n": 1, "size": "24x16", "quality": "low", "num_inference_steps": 4,
            "guidance_scale": 1.5, "negative_prompt": "rain", "true_cfg_scale": 4, "response_format": "b64_json",
            "seed": 7,
        }  # fmt: skip
        for name in options:
            if name not in ("width", "height"):
                fewer = {key: value for key, value in options.items() if key != name}
                assert renderer(server, tmp_path, **fewer).fingerprint != made.fingerprint, name
        spec = f"{server.url}?seeded=true&steps=4&negative=rain#flux"
        rest = {name: options[name] for name in ("height", "width", "guidance", "quality", "extra")}
        assert renderer(server, tmp_path, spec=f"openai:{spec}", **rest).fingerprint == made.fingerprint
        [other] = renderer(server, tmp_path, **options, timeout=9.0, price=3.0).render([GOOD], seed=7)
        assert other == image and len(server.calls) == 1
        assert "url" not in renderer_options(server.spec) and "model" not in renderer_options(server.spec)
    check_cache(tmp_path, seed=7)


def test_without_seeds_a_picture_is_one_sample_that_is_kept(tmp_path):
    with OpenAIServer() as server:
        made = renderer(server, tmp_path)
        images = made.render([GOOD, GOOD], seed=[0, 1])
        assert not made.renderer.seeded and "seed" not in server.calls[0].document
        keys = {call.headers["idempotency-key"] for call in server.calls}
        assert len(keys) == 2 == len({image.key for image in images})  # two samples, whatever a gateway remembers
        assert renderer(server, tmp_path).render([GOOD, GOOD], seed=[0, 1]) == images and len(server.calls) == 2
        record = json.loads(images[0].path.with_name(f"{images[0].key}.json").read_text())
        assert record["made"]["seeded"] is False


def test_a_picture_may_be_at_an_address(tmp_path):
    def play(call):
        name = f"/files/{call.text}.png"
        call.server.files[name] = Reply(200, call.png())
        there = {"whole": f"{call.server.url.removesuffix('/v1')}{name}", "path": name, "dots": f"..{name}"}
        data = "data:image/png;base64," + base64.b64encode(picture(call.text)).decode()
        return Reply(200, call.good(b"", b64_json=None, url=there.get(call.text, data)))

    with OpenAIServer(play) as server:
        images = renderer(server, tmp_path).render(["whole", "path", "dots", "data"])
        assert len(server.got) == 3 and not any(image.flagged for image in images)
    check_cache(tmp_path)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.2:9/x.png", "at the server itself or at an https address, got another one"),
        ("http://example.com/x.png", "got another one"),
        ("https://127.0.0.1:9/x.png", "got another one"),
        ("https://10.0.0.1/x.png", "got another one"),
        ("https://user@example.com/x.png", "got another one"),
        ("file:///etc/passwd", "got another one"),
        ("http://[::1", "got another one"),
        ("/files/../../../etc/passwd", "was drawn, but it can't be read .* answered 404"),
        ("/files/moved.png", "answered 307"),
        ("/files/huge.png", "at most 40,000,000 bytes"),
        ("/files/text.png", "no picture came"),
        ("", "with b64_json or url in the reply, got none"),
        (7, "with b64_json or url in the reply, got none"),
    ],
)
def test_an_address_that_leads_elsewhere_is_no_picture(tmp_path, url, said):
    with OpenAIServer(lambda call: Reply(200, call.good(b64_json="", url=url))) as server:
        server.files["/files/moved.png"] = Reply(307, b"", {"Location": f"{server.url}/good.png"})
        server.files["/files/huge.png"] = Reply(200, bytes(41_000_000))
        server.files["/files/text.png"] = Reply(200, b"<html>")
        server.files["/v1/good.png"] = Reply(200, picture(BAD))
        with pytest.raises(RenderingError, match=said) as error:
            renderer(server, tmp_path).render([BAD])
        one_line(error.value)
        assert not in_cache(tmp_path) and len(server.calls) == 1
        assert all(path.startswith("/files/") or path == "/etc/passwd" for path, _ in server.got)


def test_a_parameter_that_the_server_refuses_is_left_out(tmp_path):
    def play(call):
        if "response_format" in call.document:
            error = {"message": "Unknown parameter: 'response_format'.", "param": "response_format"}
            return Reply(400, {"error": error | {"code": "unknown_parameter"}})

    with OpenAIServer(play) as server:
        made = renderer(server, tmp_path, batch_size=1)
        made.render([GOOD, "another"])
        assert ["response_format" in call.document for call in server.calls] == [True, False, False]
        with pytest.raises(RenderingError, match="response_format"):
            renderer(server, tmp_path, response_format="url").render(["third"])


def test_the_key_goes_to_its_own_server_only(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv("MY_KEY", "sk-mine")
    with OpenAIServer() as server:
        renderer(server, tmp_path).render(["one"])
        renderer(server, tmp_path, api_key_variable="MY_KEY").render(["two"])
        assert [call.headers.get("authorization") for call in server.calls] == [None, "Bearer sk-mine"]
        assert not any(b"sk-mine" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        with pytest.raises(RenderingError) as error:
            server.play = lambda call: Reply(400, {"error": {"message": "sk-mine is bad: sk-mine"}})
            renderer(server, tmp_path, api_key_variable="MY_KEY").render(["three"])
        assert "sk-mine" not in str(error.value)
    own = load_renderer("openai:#gpt-image-1", cache_folder=tmp_path).renderer
    assert own.url == OPENAI_URL and own.key_variable == "OPENAI_API_KEY" and own.request() == {}
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ValueError, match="environment variable OPENAI_API_KEY"):
        load_renderer("openai:#gpt-image-1", cache_folder=tmp_path)
    with pytest.raises(ValueError, match="name of a model, as in 'openai:http://127.0.0.1:1/v1#MODEL'"):
        load_renderer("openai:http://127.0.0.1:1/v1", cache_folder=tmp_path)


# -- A1111 -------------------------------------------------------------------------------------------------------------


def test_what_a_web_interface_is_sent(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_LOGIN", "me:word")
    with A1111Server() as server:
        made = renderer(server, tmp_path, spec=f"{server.spec}#dream", height=16, width=24, steps=4, guidance=1.5,
                        negative="rain", sampler="Euler a", api_key_variable="MY_LOGIN")  # fmt: skip
        made.render([GOOD], seed=2**32 + 7)
        document = server.calls[0].document
        assert {"prompt": GOOD, "seed": 7, "steps": 4, "cfg_scale": 1.5, "negative_prompt": "rain", "width": 24,
                "sampler_name": "Euler a", "batch_size": 1, "n_iter": 1, "save_images": False,
                "override_settings": {"sd_model_checkpoint": "dream"}}.items() <= document.items()  # fmt: skip
        assert server.calls[0].headers["authorization"] == "Basic " + base64.b64encode(b"me:word").decode()


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"seed": 99}, "with the seed 0, the server drew one with '99'"),
        ({"prompt": "a wolf"}, "the server drew another one; is an extension"),
    ],
)
def test_a_picture_of_something_else_is_refused(tmp_path, info, said):
    with A1111Server(lambda call: Reply(200, call.good(info=info))) as server:
        with pytest.raises(RenderingError, match=said) as error:
            renderer(server, tmp_path).render([BAD])
        one_line(error.value)
        assert not in_cache(tmp_path)


def test_the_checkpoint_is_part_of_the_key_and_checked(tmp_path):
    with A1111Server() as server:
        made = renderer(server, tmp_path)
        assert made.render([GOOD]) == renderer(server, tmp_path).render([GOOD]) and len(server.calls) == 1
        assert made.describe()["model"] == "sd/dream.safetensors [879db5]"
        server.files["/sdapi/v1/options"] = Reply(200, {"sd_model_checkpoint": "other.ckpt"})
        with pytest.raises(ConnectionError, match="draw with the model 'other.ckpt', it drew with 'dream'") as error:
            renderer(server, tmp_path).render([GOOD])
        one_line(error.value)
        server.files.clear()
        with pytest.raises(
            ConnectionError, match="to name the checkpoint that is loaded, it does not .*404.*#CHECKPOINT"
        ):
            renderer(server, tmp_path).render([GOOD])
        server.play = lambda call: Reply(404, {"detail": "Sampler not found"})
        with pytest.raises(ConnectionError, match="the server says: Sampler not found"):
            renderer(server, tmp_path, spec=f"{server.spec}#dream").render([GOOD])
        for info in ("", "no JSON", None):
            server.play = lambda call, info=info: Reply(200, call.good() | {"info": info})
            renderer(server, tmp_path, spec=f"{server.spec}#dream").render([f"text {info}"])
    check_cache(tmp_path)
