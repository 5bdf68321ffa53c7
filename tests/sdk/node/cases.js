// Orders to the sample provider that every SDK test gives: see `weir sample-provider --help`.

export const TEXT = "Tell me about rivers. [[sample: deltas=30 delta_bytes=11]]";
export const CACHED = "[[sample: cache_read=70 cache_write=30]] Say hello.";
export const USAGES = [CACHED, "Say hello.", "[[sample: usage=zero]] hello"];
export const CUTS = [
  "[[sample: deltas=20 cut_after=3]] hello",
  "[[sample: deltas=20 cut_after=3 close=reset]] hello",
  "[[sample: deltas=20 cut_after=3 close=clean]] hello",
];
export const IN_BAND = "[[sample: deltas=20 in_band_error_after=3]] hello";
// After half an event the SDKs stumble over its JSON before they read the error behind it: they throw, each its own way.
export const HALF_EVENT = "[[sample: deltas=20 cut_after=3 half_event=true]] hello";
export const CUT_UNARY = "[[sample: deltas=200 cut_after=3]] hello";
