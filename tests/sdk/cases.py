"""Orders to the sample provider that every SDK test gives: see `weir sample-provider --help`."""

CACHED = "[[sample: cache_read=70 cache_write=30]] Say hello."
CUTS = [
    "[[sample: deltas=20 cut_after=3]] hello",
    "[[sample: deltas=20 cut_after=3 half_event=true]] hello",
    "[[sample: deltas=20 cut_after=3 close=reset]] hello",
    "[[sample: deltas=20 cut_after=3 close=clean]] hello",
]
IN_BAND = "[[sample: deltas=20 in_band_error_after=3]] hello"


def raised_for(prompt, sdk_error):
    """What a cut raises. Half an event cannot be taken back: the SDK reads it before the in-band error that follows, and
    raises on its broken JSON (a ValueError) instead of with its own class. Either way it does not look like success."""
    return (sdk_error, ValueError) if "half_event" in prompt else sdk_error
