//! Prices and charges: integer pico-USD per token and per call, summed exactly, rounded once.
//!
//! Where several models contribute to a request, each run is charged at its own model's price and in its own prompt's tier.

mod counted;
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

pub(crate) use counted::PriceLine;
pub(crate) use decimal::TokenPrice;
pub use list::PriceList;
pub(crate) use list::SHIPPED_FILE;
pub(crate) use part::CostShare;
#[cfg(test)]
pub(crate) use parts::PARTS_MAX;
pub(crate) use parts::{Charge, OtherModel, PricedRun, charge};
pub(crate) use tariff::Tier;
pub(crate) use versioned::Price;
