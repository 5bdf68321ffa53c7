//! The effective price list: the shipped one and the operator's own file.

use std::{fs, path::Path};

use crate::{
    config::Config,
    domain::{money::price::PriceList, strict_toml::FileError},
};

/// Maximum size of a price list; a larger one is not read.
const PRICE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the price lists of `[prices]`: the shipped one and the operator's own file.
///
/// # Errors
/// All errors in the list.
pub(crate) fn price_list(config: &Config) -> Result<PriceList, Vec<FileError>> {
    let list = if config.prices.shipped {
        PriceList::shipped()?
    } else {
        PriceList::default()
    };
    let Some(path) = &config.prices.file else {
        return Ok(list);
    };
    let name = path.display().to_string();
    let text = read_price_list(path).map_err(|error| {
        let message = format!("[prices] file {name}: {error}; name a readable price list");
        vec![config.catalogue.places.fault("prices.file", message)]
    })?;
    Ok(list.extended_by(PriceList::read(&name, &text)?))
}

fn read_price_list(path: &Path) -> std::io::Result<String> {
    if fs::metadata(path)?.len() > PRICE_FILE_BYTES_MAX {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    fs::read_to_string(path)
}
