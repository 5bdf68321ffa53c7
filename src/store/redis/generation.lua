-- ARGV: generation. Runs only the checks of the prelude.
return {'ok', generation}
