"""Who answers the questions."""
