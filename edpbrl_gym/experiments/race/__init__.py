"""``edpbrl bench race``: our planner and every rule of the literature on the same items, users, seeds and estimator."""
