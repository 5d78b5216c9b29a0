-- Ends a hold: compares, deletes, and wakes the waiters.
--
-- KEYS: lock
-- ARGV: owner, channel
-- Answers: 1 released, 0 not ours
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
-- A wake-up is a hint, so a user that may not publish does not fail after the write.
redis.pcall('PUBLISH', ARGV[2], '')
return 1
