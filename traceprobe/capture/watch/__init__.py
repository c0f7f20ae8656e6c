"""A whole run watched from inside, without a profiler."""
