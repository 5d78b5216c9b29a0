-- Takes a lock from whoever holds it, other clients too. Places stay.
--
-- KEYS: lock, marker, token
-- ARGV: now | after (the rest of the holder's time), mark
-- Answers: free | endless (a value that never expires: ask with now) | revoked <ms until it is
-- free>
local lock, token, mark = KEYS[1], KEYS[3], ARGV[2]
--@line
local holder, left = redis.call('GET', lock), left_of_lock()
local is_held = holder and holder ~= 'leasehold:barred'
if ARGV[1] == 'after' and holder then
  if not is_held or holder == 'leasehold:rest' then
    return 'free'
  elseif left < 0 then
    return 'endless'
  end
  forget_readers()
  may_fill()
  redis.call('SET', lock, 'leasehold:barred', 'KEEPTTL')
  return string.format('revoked %.0f', left)
end
forget_readers()
redis.call('DEL', lock)
if mark ~= '' and redis.call('GET', KEYS[2]) == mark then
  move_line()
end
return is_held and 'revoked 0' or 'free'
