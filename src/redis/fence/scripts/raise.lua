-- Behind fence.lua. Raises the fence of one key; never lowers it.
--
-- KEYS: fence
-- ARGV: token, how far ahead of the server's time a token may be (us)
-- Answers: raised | fenced seen | implausible now | foreign
local token = tonumber(ARGV[1])
local seen, newest = seen_at(KEYS[1], token, ARGV[2])
if not seen then
  return newest
end
if token > seen then
  set_fence(KEYS[1], token, newest)
end
return {'raised'}
