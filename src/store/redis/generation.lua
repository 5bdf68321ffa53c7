-- ARGV: generation. Nothing but what the prelude checks.
return {'ok', generation}
