-- Returns an account. ARGV: now, generation. Reply: balance, spent, held, running, created, paid in today and this month,
-- revision, suspended, low balance, provider state, notice thresholds, requests, tokens, concurrency.
local values, fault = fields(
  'spent', 'created', 'paid', 'revision', 'suspended', 'low_balance', 'provider_state', 'notify', 'rpm', 'tpm', 'concurrency'
)
if fault then
  return {fault}
end
local day, today, month, this_month = string.match(values[5] or '', '^(%-?%d+)|(%-?%d+)|(%-?%d+)|(%-?%d+)$')
local day_now, month_now = day_of(now), month_of(now)
local sums = sums_of(living(false), '', '')
return {
  'ok', values[1], values[3] or '0', text(sums.held), text(total(sums.running)), values[4] or '0',
  tonumber(day) == day_now and today or '0', tonumber(month) == month_now and this_month or '0', values[6] or '0',
  values[7] or '', values[8] or '', values[9] or 'own', values[10] or '', values[11] or '', values[12] or '',
  values[13] or '',
}
