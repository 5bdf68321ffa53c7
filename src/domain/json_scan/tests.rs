//! What the scan takes, refuses and finds.
