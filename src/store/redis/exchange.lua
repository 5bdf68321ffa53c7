-- Changes sign-in documents, if those that the change depends on are as expected. KEYS after those of the prelude: the documents,
-- in the order of ARGV. ARGV: generation, maximum length of the feed, the numbers of documents that are expected, put and
-- removed, and the number of digests that end; for each expected document '' if it must not exist, or '=' and its text; for each
-- document to put its lifetime in seconds and its text; the digests that end, whose documents are among the removed ones.
local expected, put, removed, ended = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local at = 7
for i = 1, expected do
  local text = redis.call('GET', KEYS[8 + i])
  if (text and '=' .. text or '') ~= ARGV[at] then
    return {'conflict', generation}
  end
  at = at + 1
end
if removed > 0 then
  even_when_full()
end
if ended > 0 then
  changed(ARGV[2], unpack(ARGV, at + 2 * put, at + 2 * put + ended - 1))
end
for i = 1, put do
  redis.call('SET', KEYS[8 + expected + i], ARGV[at + 1], 'EX', ARGV[at])
  at = at + 2
end
for i = 1, removed do
  redis.call('DEL', KEYS[8 + expected + put + i])
end
return {'ok', generation}
