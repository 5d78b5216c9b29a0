-- Takes back an attempt of unknown fate. The tombstone refuses the attempt if it is executed later.
--
-- KEYS: lock, tombstone of this owner
-- ARGV: owner, tombstone's ttl (ms), channel

-- The lock first, since that needs no memory. A key of a wrong type is not our lock, and answers an error here.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[3], '')
end
-- If this fails, the caller gets the error and withdraws again.
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
return 1
