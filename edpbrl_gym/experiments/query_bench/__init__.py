"""``edpbrl bench queries``: how many questions each way of asking and estimating needs for the same knowledge."""
