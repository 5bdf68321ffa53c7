-- What every script begins with. All keys share one hash tag, so each script is one atomic step, in a cluster too.
-- ARGV[1] is the generation this node has seen, or ''. A store without it was emptied or replaced: nothing it says about
-- keys can be trusted, and least of all that a key does not exist. One without any was never set up, or emptied before this
-- node came: `weir store init` and `weir store restore` give it one, and nothing else does.
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
-- For changes that have to be possible in a Redis that is out of memory too. It refuses the first write of a script that may
-- take memory, and none behind one that takes none, as this. Read-only, it refuses this one.
local function even_when_full()
  redis.call('HDEL', RECORDS, '')
end
-- Counts one change up and remembers whom it concerns. It is the first write of every change: a Redis that is out of memory
-- or read-only refuses here, with nothing written yet. Scripts do not roll back.
local function changed(feed_max, ...)
  local now = redis.call('INCR', VERSION)
  redis.call('RPUSH', FEED, table.concat({string.format('%.0f', now), ...}, ' '))
  redis.call('LTRIM', FEED, -tonumber(feed_max), -1)
end
