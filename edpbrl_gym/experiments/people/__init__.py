"""``edpbrl bench people``: real people's answers replayed, to see what is learnt from each of them, and from others."""
