-- Used instead of the prelude for a store that is being restored from a backup and has no generation yet.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {'conflict', ''}
end
local generation = ''
