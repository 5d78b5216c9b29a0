-- The names of batches under a lock, and what became of each: a hash of records, and the names by
-- their times. A record is the digest of the batch, "void", or how the batch broke. An absent name
-- proves nothing if it is not newer than what was forgotten: names that were deleted as old, or all
-- of them, when nobody committed under the lock for long. The fence's key, which never expires, has
-- the newest name's time: whatever the clock did, it is known what may have been forgotten.
local function forgotten(records, newest)
  return tonumber(redis.call('HGET', records, 'forgotten')) or newest
end

-- Whether the name is of a time to come, by the server's clock, or by the newest name if the clock
-- was set back: as the newest one, it would lock out those that are made now.
local function is_ahead(made, newest, most)
  return made > math.max(time[1] * 1000, newest) + most
end

-- The first write is one that a full server refuses.
local function record(records, order, name, made, what, before, kept)
  redis.call('HSET', records, name, what, 'forgotten', string.format('%.0f', before))
  redis.call('ZADD', order, made, name)
  redis.call('PEXPIRE', records, 2 * kept)
  redis.call('PEXPIRE', order, 2 * kept)
end

-- Deletes some names that are old by the server's clock. Those of this run stay.
local function forget(records, order, name, before)
  local old = redis.call('ZRANGEBYSCORE', order, '-inf', '(' .. string.format('%.0f', before), 'LIMIT', '0', '8')
  for _, one in ipairs(old) do
    if string.sub(one, 1, 32) ~= string.sub(name, 1, 32) then
      local made = redis.call('ZSCORE', order, one)
      redis.call('HDEL', records, one)
      redis.call('ZREM', order, one)
      redis.call('HSET', records, 'forgotten', string.format('%.0f', math.max(forgotten(records, 0), made)))
    end
  end
end
