//! The price list: the shipped one, with the operator's own file on top.

use std::{collections::BTreeMap, sync::Arc};

use crate::domain::{
    money::price::{read, versioned::Price},
    strict_toml::FileError,
};

/// The shipped list's path in the repository, named in errors.
pub(crate) const SHIPPED_FILE: &str = "conf/prices.toml";

/// Prices by name and, where they differ, by provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    entries: BTreeMap<PriceKey, PriceEntry>,
}

/// A price's name, and the provider that it is limited to.
type PriceKey = (String, Option<String>);

/// A price, and where it was defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriceEntry {
    /// The file's name, as given to [`PriceList::read`].
    pub file: String,
    /// The line of its `[[price]]`.
    pub line: usize,
    /// The price, checked.
    pub price: Arc<Price>,
}

impl PriceList {
    /// Reads a price list. `file` names it in errors.
    ///
    /// # Errors
    /// All faults that were found, each with its line and key; a file that does not parse has one.
    pub fn read(file: &str, text: &str) -> Result<Self, Vec<FileError>> {
        let mut entries = BTreeMap::new();
        for (line, tariff, price) in read::read_prices(file, text)? {
            let entry = PriceEntry {
                file: file.to_owned(),
                line,
                price: Arc::new(price),
            };
            entries.insert((tariff.name, tariff.provider), entry);
        }
        Ok(Self { entries })
    }

    /// The list that is part of the program.
    ///
    /// # Errors
    /// As for [`PriceList::read`]; a test proves that there are none.
    pub(crate) fn shipped() -> Result<Self, Vec<FileError>> {
        Self::read(SHIPPED_FILE, include_str!("../../../../conf/prices.toml"))
    }

    /// Adds another list. Its entries replace those with the same name and provider.
    #[must_use]
    pub(crate) fn extended_by(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// The price of this name at a provider: the provider's own, or else the one for all providers.
    pub(crate) fn find(&self, name: &str, provider: &str) -> Option<&Arc<Price>> {
        let get = |provider: Option<&str>| self.entries.get(&(name.to_owned(), provider.map(str::to_owned)));
        get(Some(provider)).or_else(|| get(None)).map(|entry| &entry.price)
    }

    /// All entries, as name, provider and price.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>, &PriceEntry)> {
        let entries = self.entries.iter();
        entries.map(|((name, provider), entry)| (name.as_str(), provider.as_deref(), entry))
    }
}
