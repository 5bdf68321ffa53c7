-- ARGV: now, generation. -> balance, spent, held, running, suspended, created, low balance, whose state, notices, requests,
-- tokens, concurrency, paid in today and this month
local values, fault = fields(
  'spent', 'suspended', 'created', 'low_balance', 'rpm', 'tpm', 'concurrency', 'provider_state', 'notify', 'paid'
)
if fault then
  return {fault}
end
local day, today, month, this_month = string.match(values[12] or '', '^(%-?%d+)|(%-?%d+)|(%-?%d+)|(%-?%d+)$')
local day_now, month_now = day_of(now), month_of(now)
local sums = sums_of(living(false), '', '')
return {
  'ok', values[1], values[3] or '0', text(sums.held), text(total(sums.running)), values[4] or '0', values[5] or '0',
  values[6] or '', values[10] or 'own', values[11] or '', values[7] or '', values[8] or '', values[9] or '',
  tonumber(day) == day_now and today or '0', tonumber(month) == month_now and this_month or '0',
}
