-- The beginning of most scripts. All keys have the same hash tag, so each script is one atomic step, in a cluster too.
-- ARGV[1] is the generation that this node has read, or ''. A store with another generation was emptied or replaced: nothing
-- that it reports about keys can be trusted, least of all that a key does not exist. A store without a generation was never
-- set up, or was emptied before this node started: only `weir store init` and `weir store restore` give it one. Every reply
-- begins with a status and the generation.
local GENERATION, VERSION, FEED, IDS, DIGESTS, RECORDS, ORDER, USED = unpack(KEYS)
local generation = redis.call('GET', GENERATION) or ''
if ARGV[1] ~= '' and generation ~= ARGV[1] then
  return {'lost', generation}
end
if generation == '' then
  return {'uninitialised', generation}
end
local function version()
  return redis.call('GET', VERSION) or '0'
end
-- Called before changes that must be possible even if Redis is out of memory. A Redis that is out of memory refuses a
-- script's first write if that write may need memory. If the first write needs none, as here, it accepts all writes of the
-- script. A read-only Redis refuses this write.
local function even_when_full()
  redis.call('HDEL', RECORDS, '')
end
-- Increments the version and adds the digests to the feed. It is the first write of every change: if Redis is out of memory or
-- read-only, it refuses this write, and nothing has been written yet. Scripts do not roll back.
local function changed(feed_max, ...)
  local now = redis.call('INCR', VERSION)
  redis.call('RPUSH', FEED, table.concat({string.format('%.0f', now), ...}, ' '))
  redis.call('LTRIM', FEED, -tonumber(feed_max), -1)
end
