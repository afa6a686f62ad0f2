"""The table ``[alerts]``: whom a study that is served tells when something breaks, without saying who takes part."""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from edpbrl_gym.study.config_reading import Table

__all__ = ["Alerts", "AlertsConfig", "read_alerts"]

_log = logging.getLogger(__name__)
_PATIENCE = 30.0  # seconds that a command or an address gets
_WAITING = 20  # alerts that wait to be sent; more say nothing new


@dataclass(frozen=True)
class AlertsConfig:
    """Whom to tell; the table is no part of what participants see, so it may change while a study runs."""

    command: str = ""  # for the shell, with JSON on its standard input; "": none
    url: str = ""  # which gets a POST of the same JSON; "": none
    every: int = 15  # minutes between two alerts about the same thing


def read_alerts(document: Table) -> AlertsConfig:
    """The alerts of a document; mistakes are noted."""
    table = document.table("alerts")
    found = AlertsConfig(
        command=table.text("command", "", of="a command", empty=True),
        url=table.text("url", "", of="an address", empty=True),
        every=table.integer("every", 15, minimum=1, maximum=60 * 24),
    )
    parts = urlsplit(found.url)
    if found.url and (parts.scheme not in ("http", "https") or not parts.hostname):
        table.note("url", "an address that begins with https:// and a host")
    table.refuse_others()
    return found


class Alerts:
    """Tells whoever the configuration names; in a thread of its own, so that no page ever waits for it.

    Args:
        config: Whom.
        study: Title of the study, in every alert.
    """

    def __init__(self, config: AlertsConfig, study: str) -> None:
        self._config, self._study = config, study
        self._last: dict[str, float] = {}  # when an event was told, by its name
        self._lock = threading.Lock()
        self._waiting: queue.Queue[dict[str, str] | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        if config.command or config.url:
            self._thread = threading.Thread(target=self._send_all, name="edpbrl-alerts", daemon=True)
            self._thread.start()

    def tell(self, event: str, message: str) -> bool:
        """Tell of an event, unless it was told of a short time ago; whether it will be told."""
        if self._thread is None:
            return False
        now = time.monotonic()
        with self._lock:
            if now - self._last.get(event, -1e9) < 60 * self._config.every:
                return False
            self._last[event] = now
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with suppress(queue.Full):
            self._waiting.put_nowait({"study": self._study, "event": event, "message": message, "time": at})
            return True
        return False

    def close(self) -> None:
        """Send what waits, and stop."""
        if self._thread is not None:
            with suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._thread.join(2 * _PATIENCE)

    def _send_all(self) -> None:
        while (alert := self._waiting.get()) is not None:
            try:
                self._send(alert)
            except Exception as error:  # the log has what happened; only the alert is lost
                _log.warning("An alert could not be sent: %s", type(error).__name__)

    def _send(self, alert: Mapping[str, str]) -> None:
        body = json.dumps(alert).encode()
        if self._config.command:
            done = subprocess.run(
                self._config.command,
                shell=True,
                input=body,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
                env={**os.environ, "EDPBRL_EVENT": alert["event"], "EDPBRL_MESSAGE": alert["message"]},
            )
            if done.returncode:
                _log.warning("The command of [alerts] ended with %d", done.returncode)
        if self._config.url:
            request = Request(self._config.url, body, {"Content-Type": "application/json"})  # noqa: S310 - http only
            with urlopen(request, timeout=_PATIENCE):  # noqa: S310
                pass
