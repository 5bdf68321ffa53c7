-- Parses the last seen terms of a key: `k:<key>` = revision|state|expiry|quota|reset|requests|tokens|concurrency, with '' for a
-- missing value.
local function read_mirror(mirror)
  local revision, state, ends, quota, reset, rpm, tpm, concurrency =
    string.match(mirror, '^(%d+)|(%l+)|(%-?%d*)|(%-?%d*)|(%l+)|(%d*)|(%d*)|(%d*)$')
  return {
    revision = tonumber(revision),
    state = state,
    ends = tonumber(ends),
    quota = tonumber(quota),
    reset = reset,
    rpm = rpm,
    tpm = tpm,
    concurrency = concurrency,
  }
end
