"""The first tables.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME, _KEY = sa.String(40), sa.String(40)


def upgrade() -> None:
    """Create all tables, and the two counters."""
    op.create_table(
        "facts",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_facts"),
    )
    counters = op.create_table(
        "counters",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.create_table(
        "configs",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("first_used_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name="pk_configs"),
    )
    _create_people()
    _create_questions()
    op.bulk_insert(counters, [{"name": "participants", "value": 0}, {"name": "deleted", "value": 0}])


def _create_people() -> None:
    op.create_table(
        "participants",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("code", _KEY, nullable=False),
        sa.Column("identity", sa.String(64)),
        sa.Column("external", sa.JSON, nullable=False),
        sa.Column("arm", sa.String(40), nullable=False),
        sa.Column("language", sa.String(40), nullable=False),
        sa.Column("consent_version", sa.Text),
        sa.Column("consented_at", _TIME),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_participants"),
        sa.UniqueConstraint("number", name="uq_participants_number"),
        sa.UniqueConstraint("code", name="uq_participants_code"),
        sa.UniqueConstraint("identity", name="uq_participants_identity"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("participant", sa.Integer),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["participant"], ["participants.id"], name="fk_events_participant"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_participant", "events", ["participant"])


def _create_questions() -> None:
    op.create_table(
        "questions",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("participant", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("tokens", sa.JSON, nullable=False),
        sa.Column("texts", sa.JSON, nullable=False),
        sa.Column("positions", sa.JSON, nullable=False),
        sa.Column("key", _KEY, nullable=False),
        sa.Column("expected", sa.Integer),
        sa.Column("repeat_of", sa.Integer),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("shown_at", _TIME),
        sa.Column("struck_by", sa.Integer),
        sa.Column("config", sa.String(64), nullable=False),
        sa.Column("code_version", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_questions"),
        sa.UniqueConstraint("key", name="uq_questions_key"),
        sa.CheckConstraint("number >= 0", name="ck_questions_number"),
        sa.ForeignKeyConstraint(["participant"], ["participants.id"], name="fk_questions_participant"),
        sa.ForeignKeyConstraint(["repeat_of"], ["questions.id"], name="fk_questions_repeat_of"),
        sa.ForeignKeyConstraint(["struck_by"], ["events.id"], name="fk_questions_struck_by"),
        sa.ForeignKeyConstraint(["config"], ["configs.fingerprint"], name="fk_questions_config"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_questions_participant", "questions", ["participant"])
    live = sa.text("struck_by IS NULL")
    op.create_index(
        "uq_questions_live_number",
        "questions",
        ["participant", "number"],
        unique=True,
        sqlite_where=live,
        postgresql_where=live,
    )
    op.create_table(
        "answers",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("participant", sa.Integer, nullable=False),
        sa.Column("question", sa.Integer, nullable=False),
        sa.Column("key", _KEY, nullable=False),
        sa.Column("response", sa.JSON, nullable=False),
        sa.Column("answered_at", _TIME, nullable=False),
        sa.Column("first_input_ms", sa.Integer),
        sa.Column("answer_ms", sa.Integer),
        sa.Column("visibility_changes", sa.Integer),
        sa.Column("viewport", sa.JSON),
        sa.Column("config", sa.String(64), nullable=False),
        sa.Column("code_version", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_answers"),
        sa.UniqueConstraint("question", name="uq_answers_question"),
        sa.UniqueConstraint("key", name="uq_answers_key"),
        sa.ForeignKeyConstraint(["participant"], ["participants.id"], name="fk_answers_participant"),
        sa.ForeignKeyConstraint(["question"], ["questions.id"], name="fk_answers_question"),
        sa.ForeignKeyConstraint(["config"], ["configs.fingerprint"], name="fk_answers_config"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_answers_participant", "answers", ["participant"])
