-- Reads the feed of changes. ARGV: generation, version. Reply: the current version, then either 'behind', if the feed does not
-- reach back to that version, or 'changes' and the entries of the feed after that version.
local now = version()
local behind = tonumber(now) - tonumber(ARGV[2])
if behind < 0 or behind > redis.call('LLEN', FEED) then
  return {'ok', generation, now, 'behind'}
end
local reply = {'ok', generation, now, 'changes'}
if behind > 0 then
  for _, entry in ipairs(redis.call('LRANGE', FEED, -behind, -1)) do
    reply[#reply + 1] = entry
  end
end
return reply
