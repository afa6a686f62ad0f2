"""Places of the balanced assignment, and people who try the study out.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both columns; whoever came before has the place of their number, if they have not given it back."""
    op.add_column("participants", sa.Column("place", sa.Integer))
    op.add_column("participants", sa.Column("pilot", sa.Boolean, nullable=False, server_default=sa.false()))
    op.execute("UPDATE participants SET place = number WHERE status NOT IN ('failed', 'withdrawn')")
    op.create_index("uq_participants_place", "participants", ["pilot", "place"], unique=True)
