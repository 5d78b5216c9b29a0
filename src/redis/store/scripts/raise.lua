-- For a quorum: makes the round's largest token that of this hold, and of the counter. Neither is
-- ever lowered.
--
-- KEYS: lock, token
-- ARGV: owner, token
-- Answers: raised | gone | ahead <now, us> (further than a second ahead of the time and of the last
-- token)
local time = redis.call('TIME')
local us, wanted = time[1] * 1000000 + time[2], tonumber(ARGV[2])
-- A value that is not ours is no number, and ends the script here.
local last = redis.call('GET', KEYS[2]) or '0'
if wanted > math.max(last + 0, us) + 1000000 then
  return string.format('ahead %.0f', us)
end
local holder = redis.call('GET', KEYS[1])
if not holder or string.sub(holder, 1, 32) ~= ARGV[1] then
  return 'gone'
end
local first, rest = string.match(holder, '^%x+ (%d+)(.*)$')
local new = math.max(first + 0, wanted)
redis.call('SET', KEYS[1], ARGV[1] .. string.format(' %.0f', new) .. rest, 'KEEPTTL')
if new > last + 0 then
  redis.call('SET', KEYS[2], string.format('%.0f', new))
end
return 'raised'
