-- Behind fence.lua. Raises the fence of one key; never lowers it.
--
-- KEYS: fence
-- ARGV: token, how far ahead of the server's time a token may be (us)
-- Answers: raised | fenced seen | implausible now | foreign
local token = tonumber(ARGV[1])
local seen, refusal = seen_at(KEYS[1], token, ARGV[2])
if refusal then
  return refusal
end
if token > seen then
  redis.call('SET', KEYS[1], ARGV[1])
end
return {'raised'}
