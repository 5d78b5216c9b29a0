-- The beginning of every script that grants. One counter serves all locks of a prefix (in a cluster, of a slot). It is a field
-- of a hash, and its name says for which incarnation of the server, and in which generation, it was armed. A claim is granted
-- only with a number from the counter that its client knows, so a server that was not judged grants nothing, and neither does a
-- request that is executed after its withdrawal, because the withdrawal removes that counter.
--
-- Before this, script.rs writes the incarnation for which the client made the text. The cache of scripts is neither copied nor
-- persisted by version 7 and later, so a server that knows the text is that incarnation, or has compared it; earlier ones compare each
-- time. A server also knows a text whose execution it refused, as a replica does, which may be promoted later. So it is asked by
-- check.lua before a text is sent to it.
local ARMED, MAX_SKEW = 1000000000000000, 1000000

-- With the last argument "verify" the server did not know this text, or may have it from another one: it compares its incarnation with
-- that of the text.
local function is_another(tokens, counter)
  if ARGV[#ARGV] ~= 'verify' then
    return false
  end
  local server, copied = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
  local run = type(server) == 'string' and string.match(server, 'run_id:(%w+)') or '?'
  local data = type(copied) == 'string' and string.match(copied, 'master_replid:(%w+)')
  if data then
    run = run .. '-' .. data
  end
  if run == INCARNATION then
    return false
  end
  local last = redis.call('HGET', tokens, counter)
  if last then
    -- A server without memory allows this write, and after it the next one.
    redis.call('HDEL', tokens, counter)
    redis.pcall('HSET', tokens, 'last', last)
  end
  return true
end

-- The next token, or nil if the counter was not armed.
local function next_token(tokens, counter)
  local token = redis.call('HINCRBY', tokens, counter, 1)
  if token > ARMED then
    return token
  end
  redis.call('HDEL', tokens, counter)
end
