-- When leases are to come back, as src/domain/ledger/account/leasing.rs has it: `recall` of the account is the mark, `near` when a
-- limit came near with leases out.
local RECALL_MS = 2000
-- Whether less is left than leases have: of the balance, or of the quota of a mirror, if there is one, in the period of a time.
local function is_near(sums, balance, mirror, key, at)
  if sums.leased <= 0 then
    return false
  end
  if balance - sums.held < sums.leased then
    return true
  end
  local spent = sums.key_leased > 0 and standing(mirror, key, at)
  return spent and mirror.quota - spent - sums.key_held < sums.key_leased
end
