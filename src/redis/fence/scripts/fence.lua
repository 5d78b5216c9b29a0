-- What a fence answers to a token, for all scripts. Its key has the largest token that it has seen,
-- and the time of the newest name of a batch under its lock, if there was any.
local time = redis.call('TIME')

local function set_fence(fence, token, newest)
  redis.call('SET', fence, newest > 0 and string.format('%.0f %.0f', token, newest) or string.format('%.0f', token))
end

-- The largest token that the fence has seen, and the time of the newest name; or nothing, and the
-- answer to a token that it refuses.
-- `token` is nil if nobody asks to enter.
local function seen_at(fence, token, ahead)
  local record = redis.call('GET', fence)
  local seen, newest = 0, 0
  if record then
    local first, second = string.match(record, '^(%d+) ?(%d*)$')
    if not first or #first > 16 or #second > 16 then
      return nil, {'foreign'}
    end
    seen, newest = tonumber(first), tonumber(second) or 0
  end
  if not token then
    return seen, newest
  end
  -- After the clock was set back, tokens go on from the last one.
  local most = math.max(time[1] * 1000000 + time[2], seen) + ahead
  if token < seen then
    return nil, {'fenced', seen}
  end
  if token > most then
    return nil, {'implausible', most}
  end
  return seen, newest
end

