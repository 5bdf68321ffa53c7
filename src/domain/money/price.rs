//! What a model costs: integer pico-USD per token and per call, summed exactly, rounded once.

mod decimal;
mod list;
mod part;
mod parts;
mod raw;
mod read;
mod tariff;
#[cfg(test)]
mod tests;
mod versioned;

pub use decimal::{DecimalError, Factor, PerCall, PerToken};
pub use list::{PriceEntry, PriceList, SHIPPED_FILE};
pub use part::Part;
pub use parts::{Charge, OtherModel, PARTS_MAX, PricedRun, charge, recomputed};
pub use tariff::{Exact, Multipliers, PerCallPrices, Tariff, Tier};
pub use versioned::{FREE_VERSION, Price};
