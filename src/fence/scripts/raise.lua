-- Raises the fence of one key; never lowers it.
--
-- KEYS: fence
-- ARGV: token, how far ahead of the server's time a token may be (us)
-- Answers: raised | fenced seen | implausible now | foreign
local token = tonumber(ARGV[1])
local time = redis.call('TIME')
local most = time[1] * 1000000 + time[2] + ARGV[2]
local record = redis.call('GET', KEYS[1])
local seen = 0
if record then
  if not string.match(record, '^%d+$') or #record > 16 then
    return {'foreign'}
  end
  seen = tonumber(record)
end
if token < seen then
  return {'fenced', seen}
end
if token > most then
  return {'implausible', most}
end
if token > seen then
  redis.call('SET', KEYS[1], ARGV[1])
end
return {'raised'}
