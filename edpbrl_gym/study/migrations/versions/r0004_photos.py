"""Photos that participants hand in.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, empty."""
    op.create_table(
        "photos",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("participant", sa.Integer, nullable=False),
        sa.Column("key", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("height", sa.Integer, nullable=False),
        sa.Column("jpeg", sa.LargeBinary, nullable=False),
        sa.Column("rating", sa.Integer),
        sa.Column("added_at", sa.String(40), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_photos"),
        sa.UniqueConstraint("key", name="uq_photos_key"),
        sa.UniqueConstraint("participant", "digest", name="uq_photos_participant_digest"),
        sa.ForeignKeyConstraint(["participant"], ["participants.id"], name="fk_photos_participant"),
        sqlite_autoincrement=True,
    )
