-- Lists names of accounts. KEYS: the index. ARGV: the name after which the list begins or '', the maximum number. Reply: the
-- names.
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local reply = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, ARGV[2])
table.insert(reply, 1, 'ok')
return reply
