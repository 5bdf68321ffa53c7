-- The digest of the previous text in a record, or ''.
local function former_of(record)
  local ok, read = pcall(cjson.decode, record)
  local former = ok and read.former
  return type(former) == 'table' and former.digest or ''
end
-- The digests of a key with this current digest and this record.
local function digests_with(digest, record)
  local former = former_of(record)
  return former == '' and {digest} or {digest, former}
end
