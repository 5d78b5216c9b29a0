-- Takes back an attempt whose fate is unknown. The tombstone refuses the attempt if it is executed only after this.
--
-- KEYS: lock, tombstone of this owner
-- ARGV: owner, tombstone's ttl (ms), channel

-- First the lock, which needs no memory. A key of a wrong type is not our lock, and answers an error here.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[3], '')
end
-- Where this fails the caller is told, and withdraws again.
redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
return 1
