"""Lines of a log as JSON, for whatever collects logs; none of them says who takes part."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonFormatter", "log_as_json"]


class JsonFormatter(logging.Formatter):
    """A line of JSON: time, level, event, where it comes from, message; of an error its type and place, not its text.

    The text of an error of a database may hold what was to be stored.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name.removeprefix("edpbrl_gym.")),
            "message": record.getMessage(),
        }
        if (status := getattr(record, "status", None)) is not None:
            line["status"] = status
        if record.exc_info and record.exc_info[1] is not None:
            error: BaseException = record.exc_info[1]
            line["message"] = str(record.msg).partition("\n")[0]
            line["error"], trace = type(error).__name__, error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            if trace is not None:
                line["place"] = f"{trace.tb_frame.f_globals.get('__name__', '')}:{trace.tb_lineno}"
        return json.dumps(line, ensure_ascii=True)


def log_as_json() -> None:
    """Write the log of this process to the standard error as lines of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
