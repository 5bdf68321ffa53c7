-- When leases are to come back, as src/domain/ledger/account/leasing.rs has it: `recall` of the account is the mark, `near` when its
-- balance came near with leases out, `near:<key>` when the quota of a key did.
local RECALL_MS = 2000
-- Adds to `changes` of the account's fields what has come near: less is left than leases have, of the balance, or of the quota of a
-- mirror, if there is one, in the period of a time. `known` says when they came near before. Whether something has been added.
local function note_near(changes, known, sums, balance, mirror, key, at)
  if sums.leased <= 0 then
    return false
  end
  local before = #changes
  local function note(field)
    changes[#changes + 1] = field
    changes[#changes + 1] = text(now)
  end
  if not known.balance and balance - sums.held < sums.leased then
    note('near')
  end
  local spent = not known.quota and sums.key_leased > 0 and standing(mirror, key, at)
  if spent and mirror.quota - spent - sums.key_held < sums.key_leased then
    note('near:' .. key)
  end
  return #changes > before
end
