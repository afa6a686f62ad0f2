"""Questions that an oracle posts, and the participants whom oracles ask.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TIME = sa.String(40)


def upgrade() -> None:
    """Create both tables, empty."""
    op.create_table(
        "oracles",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("participant", sa.Integer, nullable=False),
        sa.Column("claimed_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME),
        sa.PrimaryKeyConstraint("name", name="pk_oracles"),
        sa.UniqueConstraint("participant", name="uq_oracles_participant"),
        sa.ForeignKeyConstraint(["participant"], ["participants.id"], name="fk_oracles_participant"),
    )
    op.create_table(
        "posts",
        sa.Column("participant", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("texts", sa.JSON, nullable=False),
        sa.Column("episode", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("posted_at", _TIME, nullable=False),
        sa.Column("read_at", _TIME),
        sa.PrimaryKeyConstraint("participant", "number", name="pk_posts"),
        sa.ForeignKeyConstraint(["participant"], ["participants.id"], name="fk_posts_participant"),
    )
