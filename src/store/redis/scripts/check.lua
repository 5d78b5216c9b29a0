-- Whether this server is the incarnation for which the texts of a client were made. Another one loses the counter that the client
-- knows. Always sent by its text, so nothing follows from a server that knows this one.
--
-- KEYS: tokens
-- ARGV: counter, verify
-- Answers: 1 it is, 0 it is not
return is_another(KEYS[1], ARGV[1]) and 0 or 1
