-- The end of a release at a server that its client has judged: somebody has a place. If the first place made an offer, it is
-- granted here, and the message that wakes it is the grant. Otherwise it is called, and asks.
--
-- An offer names the counter of tokens that its claim knew. It has to be of the incarnation for which this text was made, and
-- still armed, as for every other grant.

-- Returns whether it granted. `never_free`: since when the key was never free (ms), as a text.
local function grant_by_message(at, owner, offer, never_free, micros)
  local span, counter, tokens, mode, label = string.match(offer, '^(%d+) (%S+) (%S+) ([xw])(.-) @%d+$')
  if is_other or not span or string.sub(counter, 1, #INCARNATION + 1) ~= INCARNATION .. ':' then
    return false
  end
  local is_known, token = pcall(next_token, tokens, counter)
  if not is_known or not token then
    return false
  end
  local digits = string.format('%.0f', token)
  local now = math.floor(micros / 1000)
  local about = mode .. never_free .. label .. ' @' .. string.format('%.0f', now)
  redis.call('SET', at.lock, owner .. ' ' .. digits .. ' ' .. about, 'PX', span)
  -- The claim counts from `micros`. Some servers count PX from the begin of the script, and a server may be stopped between that
  -- and TIME. The time is whole milliseconds, which the allowance for granularity covers.
  redis.call('PEXPIREAT', at.lock, string.format('%.0f', now + span))
  -- A user that may not publish does not fail here: the claim asks sooner or later, and is granted the same again.
  local message = owner .. ' ' .. digits .. ' ' .. string.format('%.0f', micros) .. ' ' .. counter
  redis.pcall('PUBLISH', ARGV[2] .. ':' .. string.sub(owner, 25), message)
  return true
end

pass_on(keys_of(KEYS[1], ARGV[3]), false, ARGV[4], ARGV[2], since_of(holder), grant_by_message)
return 1
