-- Makes a token that of a hold, if the hold is still there: its own token and the counter, which is never lowered.
--
-- KEYS: lock, counter
-- ARGV: owner, token, label, counter's ttl (ms), max skew (us)
-- Answers: raised | gone | ahead token now | foreign
local owner, token = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
if token > micros + ARGV[5] then
  return {'ahead', token, micros}
end
if redis.call('GET', KEYS[1]) ~= owner then
  return {'gone'}
end
local counter = redis.call('GET', KEYS[2])
if counter then
  local number = string.match(counter, '^(%d+) %x+ ')
  if not number then
    return {'foreign'}
  end
  token = math.max(token, tonumber(number))
end
redis.call('SET', KEYS[2], string.format('%.0f', token) .. ' ' .. owner .. ' ' .. ARGV[3], 'PX', ARGV[4])
return {'raised'}
