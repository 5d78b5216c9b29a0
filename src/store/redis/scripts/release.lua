-- Ends a hold: compares, deletes, and hands the lock over. Where its client knows the incarnation of the server, the text
-- begins with that, and ends with hand_on.lua instead of pass_on.lua.
--
-- KEYS: lock. The keys of the queue are not among them, since most of them do not exist, and a slot that moves to another node
-- of a cluster would keep a release with such keys waiting.
-- ARGV: owner, channel, the beginning of the names of the other keys of the lock, the time of a handover (ms); perhaps tokens,
--       counter, verify
-- Answers: 1 released, 0 not ours
local holder = redis.call('GET', KEYS[1])
if not holder or string.sub(holder, 1, 32) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
-- Nobody has a place. What follows, the functions of the queue and pass_on.lua, costs more to define than all of this to run. A queue
-- that moved to another node of a cluster cannot be read here, and is not nobody.
if redis.pcall('EXISTS', ARGV[3] .. 'queue') == 0 then
  redis.pcall('PUBLISH', ARGV[2], '')
  return 1
end
