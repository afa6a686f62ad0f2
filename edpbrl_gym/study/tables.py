"""The tables of a study's database; changes to them are migrations (see ``migrations/``)."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

__all__ = [
    "answers",
    "configs",
    "counters",
    "events",
    "facts",
    "metadata",
    "oracles",
    "participants",
    "photos",
    "posts",
    "questions",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# what the study is: set once
facts = Table(
    "facts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Integer, nullable=False),
)

configs = Table(
    "configs",
    metadata,
    Column("fingerprint", String(64), primary_key=True),
    Column("document", Text, nullable=False),
    Column("first_used_at", String(40), nullable=False),
)

participants = Table(
    "participants",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("number", Integer, nullable=False, unique=True),
    Column("code", String(40), nullable=False, unique=True),
    Column("identity", String(64), unique=True),  # digest of the external identifiers; null: arrived without any
    Column("external", JSON, nullable=False),
    Column("arm", String(40), nullable=False),
    Column("language", String(40), nullable=False),
    Column("consent_version", Text),
    Column("consented_at", String(40)),
    Column("status", String(16), nullable=False),
    Column("created_at", String(40), nullable=False),
    Column("place", Integer),  # of the balanced assignment; null: given back (see ``quotas``)
    Column("pilot", Boolean, nullable=False, server_default=false()),
    Index("uq_participants_place", "pilot", "place", unique=True),
    sqlite_autoincrement=True,
)

_LIVE = "struck_by IS NULL"

questions = Table(
    "questions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("participant", ForeignKey("participants.id"), nullable=False, index=True),
    Column("number", Integer, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("tokens", JSON, nullable=False),
    Column("texts", JSON, nullable=False),
    Column("positions", JSON, nullable=False),
    Column("key", String(40), nullable=False, unique=True),
    Column("expected", Integer),
    Column("repeat_of", ForeignKey("questions.id")),
    Column("created_at", String(40), nullable=False),
    Column("shown_at", String(40)),
    Column("struck_by", ForeignKey("events.id")),
    Column("config", ForeignKey("configs.fingerprint"), nullable=False),
    Column("code_version", String(40), nullable=False),
    CheckConstraint("number >= 0", name="number"),
    Index(
        "uq_questions_live_number",
        "participant",
        "number",
        unique=True,
        sqlite_where=text(_LIVE),
        postgresql_where=text(_LIVE),
    ),
    sqlite_autoincrement=True,
)

answers = Table(
    "answers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("participant", ForeignKey("participants.id"), nullable=False, index=True),
    Column("question", ForeignKey("questions.id"), nullable=False, unique=True),
    Column("key", String(40), nullable=False, unique=True),
    Column("response", JSON, nullable=False),
    Column("answered_at", String(40), nullable=False),
    Column("first_input_ms", Integer),
    Column("answer_ms", Integer),
    Column("visibility_changes", Integer),
    Column("viewport", JSON(none_as_null=True)),
    Column("config", ForeignKey("configs.fingerprint"), nullable=False),
    Column("code_version", String(40), nullable=False),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("participant", ForeignKey("participants.id"), index=True),
    Column("kind", String(32), nullable=False),
    Column("at", String(40), nullable=False),
    Column("detail", JSON, nullable=False),
    sqlite_autoincrement=True,
)

# whom a HumanOracle asks: one participant each
oracles = Table(
    "oracles",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("participant", ForeignKey("participants.id"), nullable=False, unique=True),
    Column("claimed_at", String(40), nullable=False),
    Column("finished_at", String(40)),  # null: it may still post questions
)

# its questions: number i is the participant's question i that counts
posts = Table(
    "posts",
    metadata,
    Column("participant", ForeignKey("participants.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("texts", JSON, nullable=False),
    Column("episode", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("posted_at", String(40), nullable=False),
    Column("read_at", String(40)),  # when the oracle took the answer, which is final from then on
)

# handed in by participants (see ``own_photos``); they go with whom they belong to
photos = Table(
    "photos",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("participant", ForeignKey("participants.id"), nullable=False),
    Column("key", String(40), nullable=False, unique=True),
    Column("digest", String(64), nullable=False),
    Column("width", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("jpeg", LargeBinary, nullable=False),
    Column("rating", Integer),  # from 1 to 5; null: not said
    Column("added_at", String(40), nullable=False),
    UniqueConstraint("participant", "digest"),
    sqlite_autoincrement=True,
)
