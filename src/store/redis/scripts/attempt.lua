-- One attempt to hold a lock alone. The token first: where there is none, nothing is written.
--
-- KEYS: lock, tokens, queue
-- ARGV: owner, ttl (ms), mode and label and about the time, counter; for a vote also the least token that will do; perhaps verify
-- Answers: slow: ask arm.lua | granted token ttl now | busy ttl now | queued: ask enter.lua. The time is 0 if this is no vote.
local lock, tokens, owner, ttl, counter = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[4]
if is_another(tokens, counter) then
  return 'slow'
end
-- A free lock with a queue is not free for a claim without a place. One that readers hold may be due to the first places,
-- since those ahead of them died.
if redis.call('EXISTS', KEYS[3]) == 1 then
  local holder = redis.call('GET', lock)
  if not holder or holder == 'leasehold:readers' then
    return 'queued'
  end
end
local token = next_token(tokens, counter)
if not token then
  return 'slow'
end

local now = '0'
local floor = tonumber(ARGV[5])
if floor then
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  now = string.format('%.0f', micros)
  local least = floor <= micros + MAX_SKEW and math.max(floor, micros) or micros
  if token < least then
    token = least
    redis.call('HSET', tokens, counter, string.format('%.0f', token))
  end
end

-- The whole number: Lua writes only fourteen digits of it by itself.
local digits = string.format('%.0f', token)
if redis.call('SET', lock, owner .. ' ' .. digits .. ' ' .. ARGV[3], 'NX', 'PX', ttl) then
  return 'granted ' .. digits .. ' ' .. ttl .. ' ' .. now
end
local holder = redis.call('GET', lock)
local left = redis.call('PTTL', lock)
if string.sub(holder, 1, 32) == owner then
  -- The first answer was lost: the same grant again. The count above is a write, so that a wait for replicas covers it.
  local first = string.match(holder, '^%x+ (%d+) ')
  if first and left > 0 then
    return 'granted ' .. first .. ' ' .. left .. ' ' .. now
  end
end
return 'busy ' .. left .. ' ' .. now
