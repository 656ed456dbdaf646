"""How hard the property tests try: `HYPOTHESIS_PROFILE` says it, `CI=true` asks for the profile "ci".

default     50 examples     while working
ci         200 examples     in CI; the same ones every time, so that a green commit stays green
more     2,000 examples     at night, or before a release
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: the machines that run this are small and busy, and time is measured by counting, in tests of its own.
settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("more", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def profile(environment: os._Environ[str] | dict[str, str]) -> str:
    """The profile that the environment asks for."""
    in_ci = environment.get("CI", "").lower() not in ("", "0", "false")
    return environment.get("HYPOTHESIS_PROFILE") or ("ci" if in_ci else "default")


settings.load_profile(profile(os.environ))
