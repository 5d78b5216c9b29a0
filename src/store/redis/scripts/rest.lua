-- Ends a hold that is alone, and lets the key rest: compares, and writes a word that nobody owns over the hold. Clients that know
-- nothing of rests find the key taken too. It wakes nobody: whoever waits asks again when the word has expired.
--
-- KEYS: lock
-- ARGV: owner, rest (ms)
-- Answers: 1 released, 0 not ours
local holder = redis.call('GET', KEYS[1])
if not holder or string.sub(holder, 1, 32) ~= ARGV[1] then
  return 0
end
-- The first write needs no memory: after it a full server allows the other.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[1], 'leasehold:resting', 'PX', ARGV[2])
return 1
