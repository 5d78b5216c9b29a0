-- Extends many holds: compares and extends, never creates. A key of a wrong type does not stop the others.
--
-- KEYS: locks
-- ARGV: for each lock its owner, then for each lock its ttl (ms), then the prefix of all names
-- Answers, one for each lock: 1 extended, 0 not ours, -1 not a lock, -2 what stands beside it is at another node now
local READERS = 'leasehold:readers'
local count = #KEYS
local answers = {}
local now

-- One of several readers. What stands beside the lock is in its slot.
local function renew_reader(lock, owner, ttl)
  if not now then
    local time = redis.call('TIME')
    now = math.floor((time[1] * 1000000 + time[2]) / 1000)
  end
  local beside = ARGV[2 * count + 1] .. '{' .. lock .. '}:'
  local readers = beside .. 'readers'
  local ends = redis.pcall('ZSCORE', readers, owner)
  if type(ends) == 'table' then
    return string.find(ends.err, 'WRONGTYPE', 1, true) and -1 or -2
  end
  if not ends or tonumber(ends) <= now then
    return 0
  end
  redis.call('ZADD', readers, now + ttl, owner)
  -- The lock stands for as long as the last of the readers.
  if redis.call('PTTL', lock) < ttl then
    redis.call('PEXPIRE', lock, ttl)
    redis.call('PEXPIRE', readers, ttl)
    redis.call('PEXPIRE', beside .. 'grants', ttl)
  end
  return 1
end

for i = 1, count do
  local holder = redis.pcall('GET', KEYS[i])
  if holder == ARGV[i] then
    answers[i] = redis.call('PEXPIRE', KEYS[i], ARGV[count + i])
  elseif holder == READERS then
    answers[i] = renew_reader(KEYS[i], ARGV[i], tonumber(ARGV[count + i]))
  elseif type(holder) == 'table' then
    answers[i] = -1
  else
    answers[i] = 0
  end
end
return answers
