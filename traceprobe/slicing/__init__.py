"""A few steps cut out of a trace, without what is private: a small file that viewers open."""
