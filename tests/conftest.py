"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# Nothing here fails because the machine is busy, and a commit that passed passes again. `make laws` looks for
# what nobody has seen yet.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False, max_examples=2000)
settings.load_profile("same")
