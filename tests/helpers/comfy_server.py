"""A loopback ComfyUI: queue, history, files and the cache of executed nodes, as the real server has them.

A job is done when its queue has been looked at ``looks`` times while it runs, so that nothing depends on the time.
"""

from __future__ import annotations

import json
import re
import uuid
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.helpers.picture_servers import Call, PictureServer, Play, Reply, picture

CHECKPOINT, NEGATIVE, SAMPLER, TEXT, SIZE, SAVE, PREVIEW = "4", "7", "3", "6", "5", "9", "10"


def nodes() -> dict[str, Any]:
    """The workflow of ComfyUI's first page, as exported for the API, with placeholders and a preview."""
    graph = {
        SAMPLER: ("KSampler", {"seed": "{seed}", "steps": 20, "cfg": 8, "sampler_name": "euler", "denoise": 1,
                               "model": [CHECKPOINT, 0], "positive": [TEXT, 0], "negative": [NEGATIVE, 0],
                               "latent_image": [SIZE, 0]}),
        CHECKPOINT: ("CheckpointLoaderSimple", {"ckpt_name": "dream.safetensors"}),
        SIZE: ("EmptyLatentImage", {"width": 16, "height": 16, "batch_size": 1}),
        TEXT: ("CLIPTextEncode", {"text": "{prompt}", "clip": [CHECKPOINT, 1]}),
        NEGATIVE: ("CLIPTextEncode", {"text": "text, watermark", "clip": [CHECKPOINT, 1]}),
        "8": ("VAEDecode", {"samples": [SAMPLER, 0], "vae": [CHECKPOINT, 2]}),
        SAVE: ("SaveImage", {"filename_prefix": "ComfyUI", "images": ["8", 0]}),
        PREVIEW: ("PreviewImage", {"images": ["8", 0]}),
    }  # fmt: skip
    return {one: {"inputs": inputs, "class_type": kind, "_meta": {"title": kind}} for one, (kind, inputs) in
            graph.items()}  # fmt: skip


def save(path: Path, graph: Any = None, **inputs: dict[str, Any]) -> Path:
    """Write a workflow; ``inputs`` change those of a node, as in ``node_6={"text": "x"}``."""
    graph = nodes() if graph is None else graph
    for node, changes in inputs.items():
        graph[node.removeprefix("node_")]["inputs"] |= changes
    path.write_text(json.dumps(graph))
    return path


class ComfyServer(PictureServer):
    """POST /prompt, /queue, /interrupt; GET /history, /queue, /view.

    Attributes:
        looks: After how many looks at the queue a job that runs is done.
        down: Whether every GET fails.
        ended: Documents of /interrupt and of deletions.
        entry: What changes an entry of the history, as a function of the entry and the job's text.
        view: What is answered in place of a file, as a function of the parameters and the file; None: the file.
    """

    kind, path = "comfyui", "/prompt"

    def __init__(self, play: Play | None = None, *, looks: int = 1) -> None:
        super().__init__(play)
        self.looks, self.down = looks, False
        self.waiting: list[list[Any]] = []  # number, id, nodes, extra data, outputs
        self.running: list[list[Any]] = []
        self.history: dict[str, Any] = {}
        self.pictures: dict[tuple[str, str, str], bytes] = {}
        self.ended: list[tuple[str, Any]] = []
        self.entry = lambda entry, text: entry
        self.view = lambda query, png: None
        self._executed: dict[str, Any] = {}  # whole workflow -> outputs; "execution_cached"
        self._looked = 0
        self.files = self  # asked by ``PictureServer``

    def queue(self, document: dict[str, Any]) -> dict[str, Any]:
        """Put a job into the queue; the reply."""
        with self.lock:
            job = [len(self.history) + len(self.waiting), str(uuid.uuid4()), document["prompt"],
                   document.get("extra_data", {}), [SAVE]]  # fmt: skip
            self.waiting.append(job)
        return {"prompt_id": job[1], "number": job[0], "node_errors": {}}

    def forget(self) -> None:
        """Be started again, with the files, without the rest."""
        self.waiting, self.running, self.history, self._executed = [], [], {}, {}

    def clean(self) -> None:
        """Lose all files."""
        self.pictures.clear()

    def text_of(self, graph: dict[str, Any]) -> str:
        return str(graph[TEXT]["inputs"]["text"])

    def _work(self) -> None:
        if not self.running and self.waiting:
            self.running, self._looked = [self.waiting.pop(0)], 0
        elif self.running:
            self._looked += 1
            if self._looked >= self.looks:
                job = self.running.pop()
                self.history[job[1]] = self._done(job)

    def _done(self, job: list[Any]) -> dict[str, Any]:
        graph, whole = job[2], json.dumps(job[2], sort_keys=True)
        messages: list[Any] = [["execution_start", {"prompt_id": job[1]}]]
        if whole in self._executed:
            messages.append(["execution_cached", {"nodes": [*graph]}])
        else:
            text, seed = self.text_of(graph), graph[SAMPLER]["inputs"]["seed"]
            size = graph[SIZE]["inputs"]["width"], graph[SIZE]["inputs"]["height"]
            prefix = graph[SAVE]["inputs"]["filename_prefix"]
            drawn = json.dumps({one: at for one, at in graph.items() if one != SAVE}, sort_keys=True)
            if drawn not in self._executed:
                self.paid[text, seed] += 1
                self._executed[drawn] = True
            number = 1 + sum(name.startswith(f"{prefix}_") for name, *_ in self.pictures)
            outputs = {}
            for node, name, kind in ((PREVIEW, "preview", "temp"), (SAVE, prefix, "output")):
                if node in graph:
                    place = (f"{name}_{number:05}_.png", "", kind)
                    # a preview is small, so that it is known when it is taken in place of the picture
                    self.pictures[place] = picture(text, seed, size if kind == "output" else (8, 8))
                    outputs[node] = {"images": [dict(zip(("filename", "subfolder", "type"), place, strict=True))]}
            self._executed[whole] = outputs
        status = {"status_str": "success", "completed": True, "messages": messages}
        entry = {"prompt": job, "outputs": self._executed[whole], "status": status, "meta": {}}
        return self.entry(json.loads(json.dumps(entry)), self.text_of(graph))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        document = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        if handler.path in ("/queue", "/interrupt"):
            with self.lock:
                self.ended.append((handler.path, document))
                if handler.path == "/queue":
                    self.waiting = [job for job in self.waiting if job[1] not in document["delete"]]
                self.running = [job for job in self.running if job[1] != document.get("prompt_id")]
            return self._send(handler, Reply(200))
        if handler.path != self.path:
            return self._send(handler, Reply(404, {"detail": "Not Found"}))
        with self.lock:
            call = Call(self, len(self.calls), document, {})
            self.calls.append(call)
        answer = None if self.play is None else self.play(call)
        return self._send(handler, Reply(200, self.queue(document)) if answer is None else answer)

    def get(self, path: str, missing: Reply) -> Any:
        """The answer to a GET."""
        url = urlsplit(path)
        query = {name: one[0] for name, one in parse_qs(url.query, keep_blank_values=True).items()}
        if self.down:
            return Reply(500)
        with self.lock:
            if url.path == "/queue":
                self._work()
                return Reply(200, {"queue_running": self.running, "queue_pending": self.waiting})
            if url.path == "/history":
                return Reply(200, dict([*self.history.items()][-int(query["max_items"]) :]))
            if found := re.fullmatch("/history/(.+)", url.path):
                return Reply(200, {one: self.history[one] for one in [found[1]] if one in self.history})
            if url.path == "/view":
                png = self.pictures.get((query["filename"], query["subfolder"], query["type"]))
                return self.view(query, png) or (missing if png is None else Reply(200, png))
        return missing
