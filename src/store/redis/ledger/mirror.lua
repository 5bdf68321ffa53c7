-- The last seen terms of a key: `k:<key>` = revision|state|end|quota|reset|requests|tokens|concurrency, '' for a missing
-- value.
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
