"""Recordings from inside a training: `transformers`, `lightning` and `accelerate`.

Each module needs its trainer; none is imported here. What they share is `training_session`.
"""
