"""The columns of events, and the words for what a GPU does."""
