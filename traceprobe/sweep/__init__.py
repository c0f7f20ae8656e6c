"""Running the rungs of a ladder, and what they say beside each other."""
