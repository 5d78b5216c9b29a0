-- Extends many holds: compares and extends, never creates, and needs no memory.
--
-- KEYS: locks
-- ARGV: the owners, 32 characters each; the ttls (ms), separated by spaces
-- Answers one character for each lock: 1 extended, 0 not ours, ! not a lock, ? the keys beside it
--          are at another node,
--          x it could not be read
local answers, i = {}, 0
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

-- Only a value of another type shows that the lock is not ours any more.
local function unread(failed, answer)
  return string.find(failed.err, 'WRONGTYPE', 1, true) and '!' or answer
end

local function renew_reader(lock, owner, ttl)
  local base = lock .. '{' .. lock .. '}:'
  local readers = base .. 'readers'
  local ends = redis.pcall('ZSCORE', readers, owner)
  if type(ends) == 'table' then
    return unread(ends, '?')
  elseif not ends and redis.pcall('EXISTS', readers) ~= 1 then
    -- There are readers, and their keys are still at the node that the lock has left.
    return '?'
  elseif not ends or tonumber(ends) <= now then
    return '0'
  end
  -- A first write that needs no memory: after it, a full server allows the next.
  redis.call('PEXPIREAT', lock, ends)
  redis.call('ZADD', readers, string.format('%.0f', now + ttl), owner)
  local latest = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', lock, latest)
  redis.call('PEXPIREAT', readers, latest)
  if type(redis.pcall('HLEN', base .. 'grants')) == 'number' then
    redis.call('PEXPIREAT', base .. 'grants', latest)
  end
  return '1'
end

for ttl in string.gmatch(ARGV[2], '%d+') do
  i = i + 1
  local lock, owner = KEYS[i], string.sub(ARGV[1], 32 * i - 31, 32 * i)
  local holder, answer = redis.pcall('GET', lock), '0'
  if type(holder) == 'table' then
    answer = unread(holder, 'x')
  elseif holder == 'leasehold:readers' then
    answer = renew_reader(lock, owner, tonumber(ttl))
  elseif holder and string.sub(holder, 1, 32) == owner then
    redis.call('PEXPIRE', lock, ttl)
    answer = '1'
  end
  answers[i] = answer
end
return table.concat(answers)
