-- Decides when leases have to be returned, as in src/domain/ledger/account/leasing.rs. Of the account's fields, `recall` is the
-- mark that changes at each recall, `near` is the time when the balance came near its end while leases had a part of it, and
-- `near:<key>` is the same for the quota of a key. `near_pace` and `near_pace:<key>` exist if a rate or the places came near
-- their limit.
local RECALL_MS = 2000
-- Adds to `changes` (of the account's fields) the limits that have come near. The limits are the balance, and the quota in a
-- key's terms in the period of `at`. A limit has come near if less is left of it than leases have. `known` contains when each
-- came near before. Returns whether something was added.
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
-- Does the same for the rates and places of a key and its account. `known` contains which of the two came near before.
local function note_near_paces(changes, known, paces, key)
  local before = #changes
  for i, pace in ipairs(paces) do
    local left = places_left(pace)
    local is_near = left and left < pace.places
    for _, rate in ipairs(pace.rates) do
      if rate.limit and rate.lent > 0 and bucket_now(rate.bucket, rate.limit, rate.lent) < rate.lent * UNIT then
        is_near = true
      end
    end
    if is_near and not known[i] then
      changes[#changes + 1] = pace.scope == 'key' and 'near_pace:' .. key or 'near_pace'
      changes[#changes + 1] = '1'
    end
  end
  return #changes > before
end
