//! The counters that quotas are checked by, beside the daily sums.

use super::{Admin, accounts, ask::Answered, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::checks::{VerifiedCounters, VerifyCounters, WrongCounter},
    },
    domain::ledger::usage_report::day,
    sinks::counters,
};

impl Answered for VerifyCounters {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedCounters, AdminError> {
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let days = day(self.from.0)..day(self.until.0);
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
