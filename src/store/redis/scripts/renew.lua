-- Extends many holds: compares and extends, never creates. A key of a wrong type does not stop the others.
--
-- Each argument costs the server and the client more than its content, so there are as few as possible, and one answer.
--
-- KEYS: locks
-- ARGV: the owners, of 32 characters each; the ttls (ms), as "count ttl" for each row of locks that have the same; 1 in a cluster,
--       else 0
-- Answers one character for each lock: 1 extended, 0 not ours, ! not a lock, ? the keys beside it are at another node
local READERS = 'leasehold:readers'
local answers = {}
local now

-- One of several readers. The keys beside the lock are in its slot.
local function renew_reader(lock, owner, ttl)
  if not now then
    local time = redis.call('TIME')
    now = math.floor((time[1] * 1000000 + time[2]) / 1000)
  end
  local beside = lock .. '{' .. lock .. '}:'
  local readers = beside .. 'readers'
  local ends = redis.pcall('ZSCORE', readers, owner)
  if type(ends) == 'table' then
    return string.find(ends.err, 'WRONGTYPE', 1, true) and '!' or '?'
  end
  if not ends and ARGV[3] == '1' and redis.pcall('EXISTS', readers) ~= 1 then
    -- There are readers, and their keys are still at the node that the lock has left.
    return '?'
  end
  if not ends or tonumber(ends) <= now then
    return '0'
  end
  -- The lock lasts as long as the last of the readers. The first write is one that needs no memory: after it a full server allows
  -- the others.
  local left = redis.call('PTTL', lock)
  redis.call('PEXPIRE', lock, math.max(left, ttl))
  redis.call('ZADD', readers, now + ttl, owner)
  if left < ttl then
    redis.call('PEXPIRE', readers, ttl)
    redis.pcall('PEXPIRE', beside .. 'grants', ttl)
  end
  return '1'
end

local function renew(lock, owner, ttl)
  local holder = redis.pcall('GET', lock)
  if holder == READERS then
    return renew_reader(lock, owner, tonumber(ttl))
  elseif type(holder) == 'table' then
    return '!'
  elseif holder and string.sub(holder, 1, 32) == owner then
    redis.call('PEXPIRE', lock, ttl)
    return '1'
  end
  return '0'
end

local i = 0
for count, ttl in string.gmatch(ARGV[2], '(%d+) (%d+)') do
  for _ = 1, count do
    i = i + 1
    answers[i] = renew(KEYS[i], string.sub(ARGV[1], 32 * i - 31, 32 * i), ttl)
  end
end
return table.concat(answers)
