-- Runs only the checks of the prelude. ARGV: generation.
return {'ok', generation}
