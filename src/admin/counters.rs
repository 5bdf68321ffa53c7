//! Compares the counters of quotas with the daily sums.

use super::{Admin, accounts, ask::AdminHandler, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::checks::{VerifiedCounters, VerifyCounters, WrongCounter},
    },
    domain::ledger::usage_report::day_of_date,
    sinks::counters,
};

impl AdminHandler for VerifyCounters {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedCounters, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let days = day_of_date(self.from.0)..day_of_date(self.until.0);
        let counted = counters::compare(&*admin.ledger, admin.log(), &account, &days).await;
        let counted = counted.map_err(|error| AdminError::failed(error.to_string()))?;
        Ok(VerifiedCounters {
            account,
            differences: counted.differences.iter().map(WrongCounter::from).collect(),
            compared: counted.compared,
            moving: counted.moving,
            older_than_sums: counted.older_than_sums,
        })
    }
}
