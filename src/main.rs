//! The binary: parses the arguments, makes one call, decides the exit code.

fn main() {}
