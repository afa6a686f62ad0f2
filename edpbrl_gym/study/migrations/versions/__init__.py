"""The revisions, oldest first; one that has been released is never changed."""
