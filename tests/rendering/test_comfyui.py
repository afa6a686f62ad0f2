"""Pictures by workflows of ComfyUI: no wrong picture under a prompt, none drawn twice, one clear line each."""

from __future__ import annotations

import io
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("httpx2")

from PIL import Image

from edpbrl_gym.rendering import NotDrawn, RenderingError, load_renderer
from edpbrl_gym.rendering.services.comfyui import ComfyUIRenderer
from tests.helpers.comfy_server import NEGATIVE, PREVIEW, SAMPLER, SAVE, SIZE, TEXT, ComfyServer, nodes, save
from tests.helpers.picture_servers import Reply, colour, drip, picture

BAD, GOOD = 'a bad "fox", on {seed} ice', "a good hen, in hay"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    for module in ("edpbrl_gym._http.waits", "edpbrl_gym.rendering.services.http"):
        monkeypatch.setattr(f"{module}.backoff", lambda *given: 0.01)
    monkeypatch.setattr("edpbrl_gym.rendering.services.comfyui._LONGEST_PAUSE", 0.01)
    monkeypatch.setattr("edpbrl_gym.rendering.services.comfyui._FIRST_PAUSE", 0.001)


def renderer(server, folder, workflow=None, **options):
    workflow = save(folder / "workflow.json") if workflow is None else workflow
    spec = f"{server.spec}?workflow={workflow}"
    return load_renderer(spec, cache_folder=folder / "images", **{"timeout": 5.0, "max_retries": 2} | options)


def drawn(images):
    return [image and image.load().getpixel((0, 0)) for image in images]


def check_cache(folder):
    """No picture is under another prompt or seed."""
    for path in folder.glob("images/??/*.json"):
        one = json.loads(path.read_text())
        png = (path.parent / f"{one['key']}-{one['sha256'][:16]}.png").read_bytes()
        image = Image.open(io.BytesIO(png))
        assert image.getpixel((0, 0)) == colour(one["prompt"], one["seed"]) and image.size != (8, 8)


def one_line(error):
    said = str(error)
    assert "\n" not in said and len(said) < 520 and "fox" not in said, said
    return said


def test_each_text_and_seed_gets_its_picture_and_what_is_sent_is_the_workflow(tmp_path):
    with ComfyServer() as server:
        made = renderer(server, tmp_path)
        assert made.renderer.seeded and made.batch_size == 2
        images = made.render([BAD, GOOD, BAD], seed=[0, 3, 2**63 - 1])
        assert drawn(images) == [colour(BAD), colour(GOOD, 3), colour(BAD, 2**63 - 1)]
        sent = next(call.document["prompt"] for call in server.calls if text_of(call) == BAD)
        whole = nodes()
        whole[TEXT]["inputs"]["text"], whole[SAMPLER]["inputs"]["seed"] = BAD, sent[SAMPLER]["inputs"]["seed"]
        assert sent[SAMPLER]["inputs"]["seed"] in (0, 2**63 - 1)
        assert sent == {one: {"class_type": at["class_type"], "inputs": at["inputs"]} for one, at in whole.items()}
        asked = len(server.got)
        assert renderer(server, tmp_path).render([BAD, GOOD, BAD], seed=[0, 3, 2**63 - 1]) == images
        assert len(server.got) == asked and set(server.paid.values()) == {1} and len(server.calls) == 3
    check_cache(tmp_path)


def test_options_take_the_places_of_their_placeholders(tmp_path):
    inputs = {SIZE: {"width": "{width}", "height": "{height}"}, NEGATIVE: {"text": "dull, {negative}"}}
    inputs |= {SAMPLER: {"steps": "{steps}", "cfg": "{guidance}"}, "4": {"ckpt_name": "{model}"}}
    workflow = save(tmp_path / "all.json", **{f"node_{node}": changes for node, changes in inputs.items()})
    given = {"width": 24, "height": 32, "negative": "fog", "steps": 4, "guidance": 2.5, "model": "flux.safetensors"}
    with ComfyServer() as server:
        [image] = renderer(server, tmp_path, workflow, **given).render([GOOD])
        assert (image.width, image.height) == (24, 32)
        sent = server.calls[0].document["prompt"]
        assert (sent[SIZE]["inputs"]["width"], sent[SAMPLER]["inputs"]["steps"]) == (24, 4)
        assert (sent[NEGATIVE]["inputs"]["text"], sent["4"]["inputs"]["ckpt_name"]) == ("dull, fog", "flux.safetensors")
        by_name = load_renderer(
            f"{server.spec}?workflow={workflow.name}&negative=fog&steps=4&guidance=2.5&width=24&height=32"
            "#flux.safetensors", cache_folder=tmp_path / "images", beside=tmp_path,
        )  # fmt: skip
        assert by_name.render([GOOD]) == [image] and len(server.calls) == 1
        # the key is of the nodes, wherever the file is, and of all values
        keys = {image.key}
        for changes in ({"negative": "rain"}, {"steps": 5}, {"guidance": 3.0}, {"model": "sdxl"}, {"node": PREVIEW}):
            keys.add(json.dumps(renderer(server, tmp_path, workflow, **given | changes).renderer.identity()))
        assert len(keys) == 6


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"node_{TEXT}": {"text": "a fixed text"}}, r"\{prompt\} in the workflow .*with a text are 6 \(CLIPText"),
        ({f"node_{SAMPLER}": {"positive": [NEGATIVE, 0]}}, r"\{prompt\} .*linked to node 9, .*in 6 \(CLIPTextEncode\)"),
        ({f"node_{NEGATIVE}": {"text": "{negative} {width}"}}, r"Expected width and \{width\} .*; set width"),
        ({"options": {"negative": "fog"}}, r"Expected negative and .*; write \{negative\} where it belongs, or leave"),
        ({"options": {"steps": 4}}, r"write \{steps\}"),
        ({"options": {"height": 8, "width": 8}}, r"write \{width\}"),
        ({"options": {"node": "77"}}, "a node of the workflow .*got '77'; it has 3 .KSampler"),
        ({"graph": {**nodes(), "11": nodes()[SAVE]}}, r"got 9 \(SaveImage\), 11 \(SaveImage\); name one by the option"),
        ({"graph": {"nodes": [], "links": []}}, "for the API in .*Export"),
        ({"graph": []}, "for the API in"),
        ({"graph": {"1": {"class_type": "A"}}}, "for the API in"),
    ],
)  # fmt: skip
def test_a_workflow_that_can_give_no_picture_of_a_text_is_refused_before_anything_is_sent(tmp_path, changes, said):
    options = changes.pop("options", {})
    workflow = save(tmp_path / "bad.json", **changes)
    with ComfyServer() as server:
        with pytest.raises(ValueError, match=said) as error:
            renderer(server, tmp_path, workflow, **options)
        one_line(error.value)
        with pytest.raises(FileNotFoundError):
            renderer(server, tmp_path, tmp_path / "none.json")
        with pytest.raises(ValueError, match=r"comfyui:http.*\?workflow=FILE', got none"):
            load_renderer(server.spec, cache_folder=tmp_path)
        assert not server.calls and not server.got


def test_without_a_seed_a_picture_is_one_sample(tmp_path):
    workflow = save(tmp_path / "unseeded.json", **{f"node_{SAMPLER}": {"seed": 0}})
    with ComfyServer() as server:
        made = renderer(server, tmp_path, workflow)
        assert not made.renderer.seeded
        [image] = made.render([GOOD])
        assert drawn(made.render([GOOD], seed=5)) == drawn([image])  # from the server's cache, which draws nothing
        assert made.render([GOOD]) == [image] and set(server.paid.values()) == {1}


def test_the_saved_picture_is_taken_and_a_preview_only_where_there_is_no_other(tmp_path):
    graph = nodes()
    del graph[SAVE]
    with ComfyServer() as server:
        assert (made := renderer(server, tmp_path)).renderer.workflow.node == SAVE
        assert made.render([GOOD])[0].width == 16
        assert renderer(server, tmp_path, save(tmp_path / "other.json", graph)).renderer.workflow.node == PREVIEW
        named = renderer(server, tmp_path, node=int(PREVIEW))
        assert named.render([GOOD])[0].width == 8 and set(server.paid.values()) == {1}


def text_of(call):
    return call.server.text_of(call.document["prompt"])


# -- servers that misbehave --------------------------------------------------------------------------------------------


def queued(answer):
    """The job is in the queue, and its answer is another one."""

    def play(call):
        call.server.queue(call.document)
        return answer

    return play


NOT_IN_LIST = {"message": "Value not in list", "details": "ckpt_name: 'x' not in ['y']", "extra_info": {}}
ERRORS = {"9": {"errors": [{"type": "value_not_in_list", **NOT_IN_LIST}], "class_type": "CheckpointLoader"}}
NOT_VALID = {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation", "details": ""}
# what is answered once to POST /prompt, after which the right picture comes, drawn once
PASSING = {
    "429": lambda call: Reply(429, {}, {"Retry-After": "0.1"}),
    "500": lambda call: Reply(500, b"<html>"),
    "503": lambda call: Reply(503, b"", {"Retry-After": "0.1"}),
    "closed": lambda call: [],
    "no HTTP": lambda call: [b"hello\r\n\r\n"],
    "closed, but queued": queued([]),
    "502, but queued": queued(Reply(502)),
    "504, but queued": queued(Reply(504, {"error": "lost"})),
    "502": lambda call: Reply(502),
    "half an answer, but queued": queued([b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"prompt_id": "']),
}
# what is answered to it, and what the line says
WITHOUT_PICTURE = {
    "node error": (Reply(400, {"error": NOT_VALID, "node_errors": ERRORS}),
                   r"400; .*node 9 \(CheckpointLoader\): Value not in list: ckpt_name: 'x' not in"),
    "no such node": (Reply(400, {"error": {"type": "invalid_prompt", "message": "Cannot execute because node X does "
                                           "not exist", "details": "#3"}, "node_errors": []}), "node X does not exist"),
    "an echo": (Reply(400, {"error": {"type": "x", "message": f"bad {BAD}"}}), r"400; .*\*\*\*"),
    "no prompt": (Reply(400, {"error": "no prompt", "node_errors": []}), "400; .*no prompt"),
    "no id": (Reply(200, {"number": 1, "node_errors": {}}), "prompt_id in the reply, got none"),
    "a path as id": (Reply(200, {"prompt_id": "../../view?filename=x"}), "prompt_id in the reply, got none"),
    "an unknown id": (Reply(200, {"prompt_id": "abc"}), "no longer knows what it was to draw"),
    "HTML": (Reply(200, b"<!doctype html>", {"Content-Type": "text/html"}), r"a page \(HTML\); check the address"),
    "a list": (Reply(200, []), "Expected JSON"),
    "200 with an error": (Reply(200, {"error": {"message": "no memory"}}), "no memory"),
}  # fmt: skip


@pytest.mark.parametrize("price", [None, 0.04])
@pytest.mark.parametrize("name", PASSING)
def test_a_lost_answer_costs_no_second_picture(tmp_path, name, price):
    """What can't be found at the server is asked for again by the next call."""
    with ComfyServer(lambda call: PASSING[name](call) if call.number == 0 else None) as server:
        made = renderer(server, tmp_path, price=price)
        if name in ("closed", "no HTTP", "502"):
            with pytest.raises(RenderingError, match="the same call does") as error:
                made.render([BAD])
            one_line(error.value)
        assert drawn(made.render([BAD])) == [colour(BAD)]
        assert server.paid == {(BAD, 0): 1} and len(server.calls) == (1 if name.endswith(" queued") else 2)
    check_cache(tmp_path)


@pytest.mark.parametrize("name", WITHOUT_PICTURE)
def test_what_is_no_job_is_one_text_s_error(tmp_path, name):
    answer, said = WITHOUT_PICTURE[name]
    with ComfyServer(lambda call: answer if text_of(call) == BAD else None) as server:
        made = renderer(server, tmp_path)
        with pytest.raises(RenderingError, match=said) as error:
            made.render([BAD, GOOD])
        one_line(error.value)
        assert drawn(error.value.images) == [None, colour(GOOD)]
        server.play = None
        assert drawn(made.render([BAD])) == [colour(BAD)] and server.paid == {(BAD, 0): 1, (GOOD, 0): 1}
    check_cache(tmp_path)


def failed(name, **data):
    messages = [["execution_start", {}], [name, {"node_id": "3", "node_type": "KSampler", **data}]]
    return {"outputs": {}, "status": {"status_str": "error", "completed": False, "messages": messages}}


def files(*names, **place):
    images = [{"filename": name, "subfolder": "", "type": "output"} | place for name in names]
    return {"outputs": {SAVE: {"images": images}}}


# what the history says of a job, and what the line says
ENTRIES = {
    "an error": (failed("execution_error", exception_message=f"Allocation failed\nfor {BAD}", exception_type="OOM"),
                 r"not drawn; the server says: node 3 \(KSampler\): .*\*\*\*"),
    "interrupted": (failed("execution_interrupted"), "interrupted there"),
    "an error without words": ({"outputs": {}, "status": {"status_str": "error"}}, "failed without a reason"),
    "no picture": ({"outputs": {}}, "a picture of node 9 of the workflow, got none"),
    "an empty list": ({"outputs": {SAVE: {"images": []}}}, "a picture of node 9 of the workflow, got none"),
    "a text": ({"outputs": {SAVE: {"text": ["a fox"]}}}, "a picture of node 9 of the workflow, got none"),
    "outputs of another kind": ({"outputs": [1]}, "a picture of node 9 of the workflow, got none"),
    "another job": ({"prompt": [0, "x", nodes(), {}, []]}, "the server has drawn another one"),
    "a path as a file name": (files("../../../etc/passwd", subfolder="..\\.."), "can't be read .* answered 404"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
def test_what_the_server_says_of_a_job_that_has_no_picture(tmp_path, name):
    changes, said = ENTRIES[name]
    with ComfyServer() as server:
        server.entry = lambda entry, text: entry | changes if text == BAD else entry
        made = renderer(server, tmp_path)
        with pytest.raises(RenderingError, match=said) as error:
            made.render([BAD, GOOD])
        one_line(error.value)
        assert drawn(error.value.images) == [None, colour(GOOD)]
        server.entry = lambda entry, text: entry
        assert drawn(made.render([BAD])) == [colour(BAD)] and server.paid == {(BAD, 0): 1, (GOOD, 0): 1}
    assert not [path for path in tmp_path.rglob("*") if "passwd" in path.name]
    check_cache(tmp_path)


def test_several_pictures_of_a_text_end_the_work_before_more_are_drawn(tmp_path):
    with ComfyServer() as server:
        server.entry = lambda entry, text: entry | files("a.png", "b.png")
        made = renderer(server, tmp_path, batch_size=1)
        with pytest.raises(
            ValueError, match="one picture of node 9 for a text, got 2; set batch_size to 1 .*node"
        ) as e:
            made.render([BAD, GOOD])
        one_line(e.value)
        assert server.paid == {(BAD, 0): 1}


def wrong_size(query, png):
    return Reply(200, picture(BAD, 0, (16, 24)))


# what /view answers, and what the line says
VIEWS = {
    "HTML": (lambda query, png: Reply(200, b"<html>"), "no picture came"),
    "cut PNG": (lambda query, png: Reply(200, png[:-20]), "no picture came: .* that is cut"),
    "50 MB": (lambda query, png: Reply(200, b" " * 50_000_000), "at most 40,000,000 bytes"),
    "wrong size": (wrong_size, "16 x 16 pixels, got one of 16 x 24"),
    "closed": (lambda query, png: iter(()), "no complete answer"),
    "drip": (lambda query, png: drip(), "no complete answer"),
    "403": (lambda query, png: Reply(403), "it answered 403"),
    "redirect": (lambda query, png: Reply(302, b"", {"Location": "http://127.0.0.1:1/x.png"}), "it answered 302"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_file_that_is_no_picture_is_one_text_s_error_and_nothing_is_drawn_again(tmp_path, name):
    view, said = VIEWS[name]
    size = {f"node_{SIZE}": {"width": "{width}", "height": "{height}"}}
    with ComfyServer() as server:
        bad = picture(BAD, 0)
        server.view = lambda query, png: view(query, png) if png == bad else None
        limit = 0.2 if name == "drip" else 5.0
        made = renderer(server, tmp_path, save(tmp_path / "w.json", **size), width=16, height=16, timeout=limit)
        with pytest.raises(RenderingError, match=said) as error:
            made.render([BAD, GOOD])
        one_line(error.value)
        assert drawn(error.value.images) == [None, colour(GOOD)]
        server.view = lambda query, png: None
        assert drawn(made.render([BAD])) == [colour(BAD)] and server.paid == {(BAD, 0): 1, (GOOD, 0): 1}
    check_cache(tmp_path)


def test_a_file_that_was_removed_is_saved_again_not_drawn_again(tmp_path):
    with ComfyServer() as server:
        made = renderer(server, tmp_path)
        made.render([BAD])
        for path in (tmp_path / "images").rglob("*.json"):
            path.unlink()
        server.clean()
        again = renderer(server, tmp_path)
        assert drawn(again.render([BAD])) == [colour(BAD)] and server.paid == {(BAD, 0): 1}
        prefixes = [call.document["prompt"][SAVE]["inputs"]["filename_prefix"] for call in server.calls]
        assert prefixes[0] == "ComfyUI" and prefixes[-1].startswith("ComfyUI-") and len(prefixes) == 2
        server.view = lambda query, png: Reply(404)  # for good
        with pytest.raises(RenderingError, match="was drawn, but (it )?can't be read .*answered 404"):
            made.render([GOOD])
    check_cache(tmp_path)


def test_a_server_that_is_started_again_has_lost_its_jobs(tmp_path):
    with ComfyServer(looks=10**9) as server:
        made = renderer(server, tmp_path)
        thread = threading.Timer(0.2, server.forget)
        thread.start()
        with pytest.raises(RenderingError, match="no longer knows what it was to draw; was it started again") as error:
            made.render([BAD])
        one_line(error.value)
        thread.join()
        server.looks = 1
        assert drawn(made.render([BAD])) == [colour(BAD)] and server.paid == {(BAD, 0): 1}


def test_a_picture_whose_server_was_out_of_reach_is_found_by_the_next_call(tmp_path):
    def play(call):
        call.server.down = True

    with ComfyServer(play) as server:
        made = renderer(server, tmp_path)
        with pytest.raises(RenderingError, match="500, 3 times in a row") as error:
            made.render([BAD])
        one_line(error.value)
        server.down = False
        assert drawn(made.render([BAD])) == [colour(BAD)] and server.paid == {(BAD, 0): 1} and len(server.calls) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Reply(404), "to draw pictures, it answered 404; check the address .such as http://127.0.0.1:8188"),
        (Reply(401), "to let this program in"),
        (Reply(307, b"", {"Location": "http://127.0.0.1:1/"}), "redirects elsewhere"),
    ],
)
def test_what_no_text_would_survive_ends_the_work(tmp_path, answer, said):
    with ComfyServer(lambda call: answer) as server:
        with pytest.raises(ConnectionError, match=said) as error:
            renderer(server, tmp_path, batch_size=1).render([BAD, GOOD])
        one_line(error.value)
        assert len(server.calls) == 1
    with pytest.raises(ConnectionError, match="a server at http://127.*start it"):
        renderer(server, tmp_path).render([BAD])


# -- the queue ---------------------------------------------------------------------------------------------------------


def test_the_time_in_the_queue_does_not_count_and_what_takes_too_long_is_interrupted(tmp_path, caplog):
    with ComfyServer(looks=10**9) as server:
        other = server.queue({"prompt": nodes()})["prompt_id"]
        made = renderer(server, tmp_path, timeout=0.3)
        threading.Timer(0.8, lambda: server.running.clear()).start()  # another one's job is done then
        with caplog.at_level(logging.INFO), pytest.raises(RenderingError, match=r"not drawn within 0.3 s \(timeout\)"):
            made.render([BAD])
        [(path, document)] = server.ended
        assert path == "/interrupt" and document["prompt_id"] not in ("", other)
        assert any("others are in the queue of http" in one.getMessage() for one in caplog.records)
        assert BAD not in caplog.text


def test_what_waits_is_taken_from_the_queue_when_the_work_ends(tmp_path):
    with ComfyServer(looks=10**9) as server:
        server.queue({"prompt": nodes()})
        made, stop = ComfyUIRenderer(server.url, workflow=str(save(tmp_path / "w.json"))), threading.Event()
        threading.Timer(0.2, stop.set).start()
        with pytest.raises(NotDrawn, match="stopped before the server began to draw it"):
            made.draw_one(BAD, 0, stop)
        assert [path for path, _ in server.ended] == ["/queue"] and not server.waiting and not server.paid


RUNS = """
import os, sys
import edpbrl_gym._http.transport
import edpbrl_gym.rendering.services.comfyui as comfyui
import PIL.PngImagePlugin
from edpbrl_gym.rendering import load_renderer

comfyui._FIRST_PAUSE = comfyui._LONGEST_PAUSE = 0.002
for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            load_renderer(sys.argv[1], cache_folder=sys.argv[2], batch_size=4).render([f"text {i}" for i in range(200)])
            os._exit(0)
        finally:
            os._exit(1)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_twenty_kills_in_a_run_of_200_lose_nothing_and_no_picture_is_drawn_twice(tmp_path):
    """What was under way is found at the server by the next process."""
    spec = f"?workflow={save(tmp_path / 'w.json')}"
    dice = random.Random(0)
    with ComfyServer(looks=2) as server:
        command = [sys.executable, "-c", RUNS, server.spec + spec, str(tmp_path / "images")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

            def run(kill_at=None):
                process.stdin.write("\n")
                process.stdin.flush()
                pid = int(process.stdout.readline())
                while kill_at is not None and len(server.calls) < kill_at:
                    time.sleep(0.001)
                if kill_at is not None:
                    time.sleep(dice.random() * 0.02)
                    os.kill(pid, signal.SIGKILL)
                return int(process.stdout.readline())

            for _ in range(20):
                assert run(len(server.calls) + dice.randrange(9)) == -signal.SIGKILL
            assert len(list(tmp_path.glob("images/??/*.png"))) < 200
            assert run() == 0
            process.stdin.close()
        assert len(server.paid) == 200 == len(server.calls) and set(server.paid.values()) == {1}
    assert len(list(tmp_path.glob("images/??/*.json"))) == 200
    check_cache(tmp_path)
