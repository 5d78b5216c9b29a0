-- Claims the name of a commit as void, unless the name exists.
--
-- KEYS: name of the commit
-- ARGV: when the name was made (ms), how long after that its record certainly exists (ms), how far ahead of the server's time
--       the name may be (ms), for how long the record is kept (ms)
-- Answers: applied | void | broken index why | old now | ahead now
local record = redis.call('GET', KEYS[1])
if record == 'void' then
  return {'void'}
elseif record then
  local broke_at, why = string.match(record, '^%x+ broken (%d+) (.*)$')
  if broke_at then
    return {'broken', tonumber(broke_at), why}
  end
  return {'applied'}
end
local time = redis.call('TIME')
local age = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1]
if age > tonumber(ARGV[2]) then
  return {'old', age}
end
if -age > tonumber(ARGV[3]) then
  return {'ahead', -age}
end
redis.call('SET', KEYS[1], 'void', 'PX', ARGV[4])
return {'void'}
