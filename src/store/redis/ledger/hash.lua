-- A hash whose fields are read when they are needed, changed in memory, and written at the end. The value '' means that the
-- field is missing.
local function opened(name)
  local hash = {values = {}, changed = {}}
  -- Reads those fields that have not been read yet.
  function hash.load(...)
    local missing = {}
    for _, field in ipairs({...}) do
      if not hash.values[field] then
        missing[#missing + 1] = field
      end
    end
    if #missing > 0 then
      local values = redis.call('HMGET', name, unpack(missing))
      for i, field in ipairs(missing) do
        hash.values[field] = values[i] or ''
      end
    end
  end
  function hash.get(field)
    local value = hash.values[field]
    if not value then
      value = redis.call('HGET', name, field) or ''
      hash.values[field] = value
    end
    return value
  end
  function hash.set(field, value)
    hash.values[field] = value
    hash.changed[field] = true
  end
  -- Adds `more` to a number and returns the sum.
  function hash.add(field, more)
    local sum = bounded((tonumber(hash.get(field)) or 0) + more)
    hash.set(field, sum)
    return sum
  end
  function hash.write()
    local written, removed = {}, {}
    for field in pairs(hash.changed) do
      local value = hash.values[field]
      if value == '' then
        removed[#removed + 1] = field
      else
        written[#written + 1] = field
        written[#written + 1] = type(value) == 'number' and text(value) or value
      end
    end
    if #written > 0 then
      redis.call('HSET', name, unpack(written))
    end
    if #removed > 0 then
      redis.call('HDEL', name, unpack(removed))
    end
  end
  return hash
end
