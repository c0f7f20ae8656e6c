"""The DataLoaders of a program: what they give, and what it takes to make that."""
