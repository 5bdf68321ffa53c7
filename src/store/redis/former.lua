-- Returns the digest of the previous secret in a record, or '' if there is none.
local function former_of(record)
  local ok, read = pcall(cjson.decode, record)
  local former = ok and read.former
  return type(former) == 'table' and former.digest or ''
end
-- Returns the digests of a key with this current digest and this record.
local function digests_with(digest, record)
  local former = former_of(record)
  return former == '' and {digest} or {digest, former}
end
