"""How many examples a property gets that is expensive, or that other properties already hold by other means."""

from __future__ import annotations

from hypothesis import settings

A_QUARTER = settings(max_examples=max(10, (settings.default or settings()).max_examples // 4))
"""A quarter of what the profile gives, ten at least."""
