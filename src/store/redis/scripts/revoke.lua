-- Takes a lock away from whoever holds it. Places in the queue stay. Who is next does not hold yet, and stays next.
--
-- KEYS: lock, readers, grants
-- ARGV: now | after, channel, the beginning of the names of the other keys of the lock, the time of a handover (ms)
-- Answers: revoked ms | free | endless
local BARRED, RESTING = 'leasehold:barred', 'leasehold:resting'
local lock, readers, grants = KEYS[1], KEYS[2], KEYS[3]
local is_now = ARGV[1] == 'now'
local at = keys_of(lock, ARGV[3])
-- A key of a wrong type ends the script here, before the first write.
local holder = redis.call('GET', lock)
redis.call('ZCARD', readers)
redis.call('HLEN', grants)

if not holder then
  -- A hold that ran out is handed over by whoever asks first.
  pass_on(at, false, ARGV[4], ARGV[2])
  return {'free'}
elseif (holder == RESTING and not is_now) or string.sub(holder, 1, #NEXT) == NEXT then
  return {'free'}
end
local left = redis.call('PTTL', lock)
if left < 0 and not is_now then
  return {'endless'}
end
local next, now = {}, nil
if holder == READERS then
  -- Of those, the ones that have not asked since their handover.
  now = server_millis()
  local living = redis.call('ZRANGEBYSCORE', readers, '(' .. now, '+inf')
  for _, reader in ipairs(living) do
    if redis.call('HEXISTS', grants, reader) == 0 then
      next[#next + 1] = reader
    end
  end
  if #next > 0 and #next == #living then
    return {'free'}
  end
end
-- First what needs no memory: after it a full server allows the other writes.
redis.call('DEL', readers, grants)
for i = #next, 1, -1 do
  -- A hint of what was lost: whoever lives asks within this time.
  pcall(put_back, at, next[i], false, now + ARGV[4])
end
if is_now then
  redis.call('DEL', lock)
  left = 0
  pass_on(at, false, ARGV[4], ARGV[2])
else
  -- Nobody can renew or release it, and it is gone when the last lease under it has ended.
  redis.call('SET', lock, BARRED, 'XX', 'KEEPTTL')
  -- A wake-up is a hint, so a user that may not publish does not fail after the write.
  redis.pcall('PUBLISH', ARGV[2], '')
end
if holder == BARRED then
  return {'free'}
end
return {'revoked', left}
