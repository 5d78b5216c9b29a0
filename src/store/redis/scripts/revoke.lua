-- Takes a lock away from whoever holds it. Each owner gets a tombstone, so that its claim is not granted again. Places in
-- the queue stay.
--
-- KEYS: lock, readers, grants
-- ARGV: now | after, channel, the beginning of a tombstone's name, a tombstone's ttl (ms)
-- Answers: revoked ms | free | endless
local READERS, BARRED = 'leasehold:readers', 'leasehold:barred'
local lock, readers, grants = KEYS[1], KEYS[2], KEYS[3]
local is_now = ARGV[1] == 'now'
-- A key of a wrong type ends the script here, before the first write.
local holder = redis.call('GET', lock)
redis.call('ZCARD', readers)
redis.call('HLEN', grants)

if not holder then
  return {'free'}
end
local left = redis.call('PTTL', lock)
if left < 0 and not is_now then
  return {'endless'}
end
local owners = {holder}
if holder == READERS then
  local time = redis.call('TIME')
  local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
  owners = redis.call('ZRANGEBYSCORE', readers, '(' .. now, '+inf')
end
for _, owner in ipairs(owners) do
  -- The value of another client is not an owner token, and no claim of ours has it.
  if #owner == 32 and not string.find(owner, '%X') then
    redis.call('SET', ARGV[3] .. owner, '', 'PX', ARGV[4])
  end
end
redis.call('DEL', readers, grants)
if is_now then
  redis.call('DEL', lock)
  left = 0
else
  -- Nobody can renew or release it, and it is gone when the last lease under it has ended.
  redis.call('SET', lock, BARRED, 'XX', 'KEEPTTL')
end
-- A wake-up is a hint, so a user that may not publish does not fail after the write.
redis.pcall('PUBLISH', ARGV[2], '')
if holder == BARRED then
  return {'free'}
end
return {'revoked', left}
