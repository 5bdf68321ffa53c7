//! Compares the daily sums with the rows that they are the sums of, wherever these are, and puts sums in their place.

use super::{Admin, accounts, ask::Answered, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::checks::{MendLog, MendedDay, NoteVerifiedLog, NotedVerified, SumsDifference, VerifiedDay, VerifyLog},
    },
    domain::ledger::{NodeId, usage_report::day},
    sinks::{asks::HomeError, proof::Findings, reading::LogReadError},
    store::StoreError,
};

pub(super) const DAY_MS: i64 = 24 * 3_600_000;

impl Answered for VerifyLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedDay, AdminError> {
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        let Findings { counts, verdict, .. } = prove(admin, &account, day(self.day.0)).await?;
        Ok(VerifiedDay {
            account,
            day: self.day,
            home: admin.homes.home.name().to_owned(),
            rows: counts.at_home,
            on_their_way: counts.on_their_way,
            again: counts.again,
            behind: verdict.behind.iter().map(NodeId::to_string).collect(),
            missing: verdict.missing,
            sums_agree: verdict.sums_agree,
            differences: verdict.differences.iter().map(SumsDifference::from).collect(),
        })
    }
}

impl Answered for NoteVerifiedLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<NotedVerified, AdminError> {
        let now_ms = admin.ledger.now_ms().await?;
        let counts = (day(self.from.0)..day(self.until.0)).contains(&(now_ms.div_euclid(DAY_MS) - 1));
        if counts {
            admin.log.note_verified(now_ms.div_euclid(1000));
        }
        Ok(NotedVerified { counts })
    }
}

impl Answered for MendLog {
    async fn answer(self, admin: &Admin, author: Author) -> Result<MendedDay, AdminError> {
        let account = accounts::existing(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.mend", "", &self).await?;
        let (name, number) = (admin.homes.home.name(), day(self.day.0));
        let found = prove(admin, &account, number).await?;
        if let [lane, ..] = &*found.verdict.behind {
            return Err(AdminError::invalid(format!(
                "{lane} may still bring rows of account `{account}` on {} to the log's home ({name}), so the sums of those that are \
                 there are not those of the day",
                self.day
            )));
        }
        if found.counts.again > 0 {
            return Err(AdminError::invalid(format!(
                "the log's home ({name}) has {} rows of account `{account}` on {} twice: take them out first, as docs/log.md says",
                found.counts.again, self.day
            )));
        }
        let is_whole = found.verdict.differences.is_empty();
        let ledger = &*admin.ledger;
        if !is_whole && !ledger.put_sums(&account, number, &found.sums, found.requests).await? {
            let message = format!("rows of account `{account}` have come meanwhile; try again");
            return Err(StoreError::Busy(message).into());
        }
        Ok(MendedDay {
            account,
            day: self.day,
            mended: true,
        })
    }
}

/// Compares a day of an account with its sums.
pub(super) async fn prove(admin: &Admin, account: &str, day: i64) -> Result<Findings, AdminError> {
    let found = admin.homes.prover(&*admin.ledger).prove(account, day).await;
    found.map_err(|error: HomeError| LogReadError::from(error).into())
}
