"""Orders to the sample provider that every SDK test gives: see `weir sample-provider --help`."""

CACHED = "[[sample: cache_read=70 cache_write=30]] Say hello."
CUTS = [
    "[[sample: deltas=20 cut_after=3]] hello",
    "[[sample: deltas=20 cut_after=3 close=reset]] hello",
    "[[sample: deltas=20 cut_after=3 close=clean]] hello",
]
IN_BAND = "[[sample: deltas=20 in_band_error_after=3]] hello"
# After half an event the SDKs stumble over its JSON before they read the error behind it: they raise, each its own way.
HALF_EVENT = "[[sample: deltas=20 cut_after=3 half_event=true]] hello"
