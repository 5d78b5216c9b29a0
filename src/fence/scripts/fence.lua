-- What a fence answers to a token, for both scripts.
local time = redis.call('TIME')

-- The largest token that the fence has seen; or nothing, and the answer to a token that it refuses.
local function seen_at(fence, token, ahead)
  local record = redis.call('GET', fence)
  local seen = 0
  if record then
    if not string.match(record, '^%d+$') or #record > 16 then
      return nil, {'foreign'}
    end
    seen = tonumber(record)
  end
  local most = time[1] * 1000000 + time[2] + ahead
  if token < seen then
    return nil, {'fenced', seen}
  end
  if token > most then
    return nil, {'implausible', most}
  end
  return seen
end

