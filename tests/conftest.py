"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# Nothing here fails because the machine is busy.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
settings.load_profile("busy")
